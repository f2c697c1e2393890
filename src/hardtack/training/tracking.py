"""The log of a run: lines on the console, metrics as JSON lines (always), and whatever trackers receive them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardtack.base.files import is_disk_full, no_space, write_text
from hardtack.base.limits import bounded_lines
from hardtack.base.progress import Meter
from hardtack.training.trackers import TrackedRun, Tracking


class MetricsFile:
    """Appends to `metrics.jsonl`. After a resume, lines from beyond the resumed step are dropped first."""

    def __init__(self, folder: Path, *, resumed_step: int) -> None:
        self.path = folder / "metrics.jsonl"
        self.kept = [line for line in _lines(self.path) if line["step"] <= resumed_step] if resumed_step else []
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.kept))
        self._file = self.path.open("a")

    def write(self, kind: str, *, step: int, epoch: float, **values: Any) -> None:
        try:
            self._file.write(json.dumps({"kind": kind, "step": step, "epoch": round(epoch, 6), **values}) + "\n")
            self._file.flush()
        except OSError as error:
            if is_disk_full(error):
                raise no_space(self.path) from error
            raise

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was reported when it was
            self._file.close()


class RunLog:
    """Lines on the console, metrics in a file and in trackers; only the first process has a file and trackers.

    As a context it closes both, and tells the trackers how the run ended.
    """

    def __init__(self, name: str, meter: Meter) -> None:
        self.name, self.meter = name, meter
        self._file: MetricsFile | None = None
        self._tracking: Tracking | None = None

    def open(self, run: TrackedRun, trackers: Sequence[str]) -> None:
        """From here on `write` keeps what it is given."""
        run.folder.mkdir(parents=True, exist_ok=True)
        self._file = MetricsFile(run.folder, resumed_step=run.step)
        self._tracking = Tracking(trackers, run, self.note, earlier=self._file.kept)
        self._file.kept = []

    def say(self, text: str) -> None:
        self.meter.say(f"{self.name} {text}")

    def note(self, sentence: str) -> None:
        self.meter.say(f"{self.name}: {sentence}")

    def write(self, kind: str, *, step: int, epoch: float, **values: Any) -> None:
        if self._file is not None:
            self._file.write(kind, step=step, epoch=epoch, **values)
        if self._tracking is not None:
            self._tracking.write(kind, step=step, epoch=epoch, **values)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if self._tracking is not None:
            stopped = kind is not None and issubclass(kind, SystemExit | KeyboardInterrupt)
            self._tracking.close("finished" if kind is None else "stopped" if stopped else "failed")


class Window:
    """Means of what the steps report, kept on the device until they are logged."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}

    def add(self, parts: Mapping[str, Tensor]) -> None:
        counted = {**parts, "steps": torch.ones_like(next(iter(parts.values())))}
        self.sums = {name: self.sums.get(name, 0) + value for name, value in counted.items()}

    def flush(self, world_size: int = 1) -> tuple[int, dict[str, float]]:
        """The number of steps since the last flush, and the mean of each part over them and all processes."""
        names, totals = list(self.sums), torch.stack(list(self.sums.values()))
        if world_size > 1:
            torch.distributed.all_reduce(totals)
        self.sums = {}
        sums = dict(zip(names, totals.tolist(), strict=True))
        steps = sums.pop("steps")
        return round(steps / world_size), {name: value / steps for name, value in sums.items()}


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    for _, text, _ in bounded_lines(path) if path.exists() else ():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # a kill in the middle of a line
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines
