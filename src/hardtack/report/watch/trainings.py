"""What the page says of a training: where it is, how long it will take, and its curves."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardtack.base.config import read_yaml
from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.base.trust import file_inside
from hardtack.report.history import is_number
from hardtack.report.watch.log import GrowingLog

LOCK = ".training.lock"
_OBSERVED_S = 15.0  # from then on the time left follows from what was seen, validation included
_KEPT_S = 600.0


class TrainingFolder:
    """A run folder with the log of a training, followed from call to call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = GrowingLog(folder / "metrics.jsonl")
        self._config: tuple[float, dict[str, Any]] = (-1.0, {})
        self._seen: deque[tuple[float, float]] = deque()

    def snapshot(self, *, running: bool) -> dict[str, Any] | None:
        """Plain values for the page; None where nothing is or was trained here."""
        try:
            self.log.path = file_inside(self.folder, "metrics.jsonl")
        except UserError:  # a link that leads out of the run folder
            return None
        self.log.read()
        if not self.log.last and not running:
            return None
        config = self._settings()
        section = config.get("train")
        train: Mapping[str, Any] = section if isinstance(section, Mapping) else {}
        epochs = _number(train.get("epochs"))
        line = self.log.last.get("train", {})
        epoch = max((float(entry["epoch"]) for entry in self.log.last.values()), default=0.0)
        finished = epochs is not None and epoch >= epochs - 1e-6
        state = "running" if running else "finished" if finished else "stopped"
        return {
            "kind": "training",
            "state": state,
            "about": _about(config),
            "epoch": round(epoch, 3),
            "epochs": epochs,
            "share": min(1.0, epoch / epochs) if epochs else None,
            "left_s": self._left(epoch, epochs, line, _number(train.get("batch_size"))) if running else None,
            "rate": _number(line.get("images_per_s")),
            "lr": _number(line.get("lr")),
            "step": _number(line.get("step")),
            "changed": self.log.changed or None,
            "last": self._last(),
            "warnings": list(dict.fromkeys(self.log.warnings)),
            "curves": self.log.curves,
        }

    def _last(self) -> dict[str, float]:
        """The newest value of every curve."""
        return {name: points[-1][1] for name, points in self.log.curves.items() if points}

    def _settings(self) -> dict[str, Any]:
        """The configuration, read again where it changed."""
        try:
            path = file_inside(self.folder, "config.yaml")
            changed = path.stat().st_mtime
            if changed != self._config[0]:
                self._config = (changed, read_yaml(path, alone=True))
        except (OSError, UserError):
            self._config = (-1.0, {})
        return self._config[1]

    def _left(self, epoch: float, epochs: float | None, line: Mapping[str, Any], batch: float | None) -> float | None:
        """Seconds until the last epoch: from the progress that was seen, else from the speed that the log names."""
        now = time.monotonic()
        if not self._seen or self._seen[-1][1] != epoch:
            if self._seen and epoch < self._seen[-1][1]:  # it went on from an earlier state
                self._seen.clear()
            self._seen.append((now, epoch))
        while len(self._seen) > 2 and now - self._seen[0][0] > _KEPT_S:
            self._seen.popleft()
        if epochs is None or epoch <= 0:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        if ended - began >= _OBSERVED_S and last > first:
            left = (epochs - last) * (ended - began) / (last - first) - (now - ended)
            return max(0.0, left)
        rate, step = _number(line.get("images_per_s")), _number(line.get("step"))
        if not (rate and step and batch) or min(rate, step, batch) <= 0:
            return None
        seconds = (epochs - epoch) * (step / max(float(line["epoch"]), 1e-9)) * batch / rate
        return max(0.0, seconds) if math.isfinite(seconds) else None


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) and abs(value) < 1e15 else None


def _about(config: Mapping[str, Any]) -> str:
    """`vit_digits on digits, trades`, as far as the configuration says it."""

    def name(section: str) -> str:
        value = config.get(section)
        value = value.get("name") if isinstance(value, Mapping) else value
        return shorten(value, 60) if isinstance(value, str) else ""

    model, data, objective = name("model"), name("data"), name("objective")
    return ", ".join(part for part in (f"{model} on {data}" if model and data else model, objective) if part)
