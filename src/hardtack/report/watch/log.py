"""The log of a training as it grows: each call reads only what was appended since the last one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hardtack.base.limits import LINE_BYTES, check_depth, shorten
from hardtack.report.history import is_number

# what the page draws: name of the curve → kind of line, field
CURVES = {
    "loss": ("train", "loss"),
    "accuracy": ("train", "accuracy"),
    "robust": ("train", "robust_accuracy"),
    "validation": ("validation", "clean_accuracy"),
    "validation_robust": ("validation", "robust_accuracy"),
}
_MOST_POINTS = 600  # of a curve that is kept; then every second one is dropped
_BLOCK = 2**22  # bytes that are read at once: a long log is not held in memory
_MOST_WARNINGS = 20


class GrowingLog:
    """`metrics.jsonl` of one run: the last line of each kind, curves that are thinned as they grow, and warnings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._inode, self._offset, self._rest = 0, 0, b""
        self.last: dict[str, dict[str, Any]] = {}
        self.curves: dict[str, list[list[float]]] = {name: [] for name in CURVES}
        self._steps: dict[str, list[int]] = {name: [1, 0] for name in CURVES}  # keep every n-th point; seen so far
        self.warnings: list[str] = []
        self.changed = 0.0

    def read(self) -> None:
        """Take in what was appended. A file that became shorter or was replaced is read from its beginning."""
        try:
            facts = self.path.stat()
            if facts.st_ino != self._inode or facts.st_size < self._offset:
                self._forget()
                self._inode = facts.st_ino
            self.changed = facts.st_mtime
            with self.path.open("rb") as file:
                file.seek(self._offset)
                while self._offset < facts.st_size and (block := file.read(min(_BLOCK, facts.st_size - self._offset))):
                    self._take_block(block)
        except OSError:
            self._forget()

    def _take_block(self, block: bytes) -> None:
        self._offset += len(block)
        *lines, self._rest = (self._rest + block).split(b"\n")
        self._rest = b"" if len(self._rest) > LINE_BYTES else self._rest
        for line in lines:
            self._take(line)

    def _take(self, text: bytes) -> None:
        try:
            check_depth(plain := text.decode("utf-8", errors="replace"))
            line = json.loads(plain)
        except (ValueError, RecursionError):  # of a file that was cut off, or is no log
            return
        if not isinstance(line, dict) or not is_number(line.get("epoch")):
            return
        kind = str(line.get("kind"))
        self.last[kind] = line
        if kind == "warning" and len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(shorten(str(line.get("warning")).replace("_", " "), 120))
        for name, (wanted, field) in CURVES.items():
            if kind == wanted and is_number(line.get(field)):
                self._add(name, float(line["epoch"]), float(line[field]))

    def _add(self, name: str, epoch: float, value: float) -> None:
        every, seen = self._steps[name]
        points = self.curves[name]
        if seen % every == 0:
            points.append([round(epoch, 4), float(f"{value:.5g}")])
            if len(points) > _MOST_POINTS:
                points[:] = points[::2]
                self._steps[name][0] = 2 * every
        self._steps[name][1] = seen + 1
