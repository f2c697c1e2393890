"""The log of a run: lines on the console, metrics as JSON lines (always) and in TensorBoard (optional)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.base.files import is_disk_full, no_space, write_text
from hardtack.base.limits import bounded_lines
from hardtack.base.progress import Meter


class Tracker:
    """Appends to `metrics.jsonl`. After a resume, lines from beyond the resumed step are dropped first."""

    def __init__(self, folder: Path, *, resumed_step: int, tensorboard: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [line for line in _lines(self.path) if line["step"] <= resumed_step] if resumed_step else []
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.path.open("a")
        self._board = _board(folder, resumed_step) if tensorboard else None

    def write(self, kind: str, *, step: int, epoch: float, **values: Any) -> None:
        try:
            self._file.write(json.dumps({"kind": kind, "step": step, "epoch": round(epoch, 6), **values}) + "\n")
            self._file.flush()
        except OSError as error:
            if is_disk_full(error):
                raise no_space(self.path) from error
            raise
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was reported when it was
            self._file.close()
        if self._board is not None:
            self._board.close()


class RunLog:
    """Lines on the console and metrics in files; only the first process writes files."""

    def __init__(self, name: str, tracker: Tracker | None, meter: Meter) -> None:
        self.name, self.tracker, self.meter = name, tracker, meter

    def say(self, text: str) -> None:
        self.meter.say(f"{self.name} {text}")

    def note(self, sentence: str) -> None:
        self.meter.say(f"{self.name}: {sentence}")

    def write(self, kind: str, *, step: int, epoch: float, **values: Any) -> None:
        if self.tracker is not None:
            self.tracker.write(kind, step=step, epoch=epoch, **values)

    def close(self) -> None:
        if self.tracker is not None:
            self.tracker.close()


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


def _board(folder: Path, resumed_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("train.tensorboard needs TensorBoard: pip install 'hardtack[track]'") from None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_step + 1)
