"""How a task ended that left the queue without its result, in words for a person."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hardtack.base.limits import read_bounded, shorten
from hardtack.engine.slurm.queue import QueuedTask
from hardtack.engine.slurm.settings import SlurmSettings
from hardtack.engine.slurm.task import exit_path, log_path

MISTAKE = 2  # hardtack's exit code for a mistake of the user: another attempt would end in the same way
_STOPPED = ("CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED")  # by Slurm, not by its own fault
_TAIL_BYTES = 16384
_LINE = 400


@dataclass(frozen=True)
class Outcome:
    """`code` is the command's exit code, if its shell lived long enough to write it. `state` is Slurm's last word."""

    code: int | None
    state: str

    @property
    def is_mistake(self) -> bool:
        return self.code == MISTAKE

    @property
    def is_final(self) -> bool:
        """Whether the task has surely failed; else its result may still be on its way through a shared disk."""
        return bool(self.code) or self.state in _STOPPED

    def __str__(self) -> str:
        if self.state in _STOPPED and not self.is_mistake:  # its shell may have noted the signal before it ended
            return self.state
        if self.code:
            return f"exit code {self.code}"
        if self.code == 0 or self.state == "COMPLETED":
            return "ended without an error, but its result is not there"
        return self.state or "no longer in the queue"


def read_outcome(folder: Path, position: int, *, job: int, row: QueuedTask | None) -> Outcome:
    """What is known about the end of a task of the array `job`."""
    return Outcome(_read_code(exit_path(folder, position), job), row.state if row is not None else "")


def has_succeeded(folder: Path, position: int) -> bool:
    """Whether the last attempt of a task, in whatever job, ended without an error."""
    return _read_code(exit_path(folder, position)) == 0


def _read_code(path: Path, job: int | None = None) -> int | None:
    """The exit code in the file, if it was written by this job and not by an earlier attempt."""
    try:
        words = read_bounded(path, 64).split()
    except (OSError, ValueError):  # a UserError is a ValueError
        return None
    if len(words) != 2 or not all(word.isdecimal() and word.isascii() for word in words):
        return None
    if job is not None and int(words[0]) != job:
        return None
    return int(words[1])


def last_words(folder: Path, position: int) -> str:
    """The error line at the end of a task's log: hardtack's own where there is one, else the last line."""
    path = log_path(folder, position)
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            lines = [line.strip() for line in file.read(_TAIL_BYTES).decode("utf-8", errors="replace").splitlines()]
    except OSError:
        return f"it left no log at {path}: the folder must be on a disk that the compute nodes share"
    begins = [number for number, line in enumerate(lines) if line.startswith("== job ")]
    lines = [line for line in lines[begins[-1] + 1 if begins else 0 :] if line]  # of the last attempt
    ours = [line for line in lines if line.startswith("hardtack: ")]
    last = (ours or lines or ["its log is empty"])[-1]
    return shorten(last, _LINE)


def advice(outcome: Outcome, settings: SlurmSettings) -> str:
    """Which setting may help."""
    if outcome.state == "TIMEOUT":
        return f" (slurm.hours={settings.hours:g} may be too short)"
    if outcome.state == "OUT_OF_MEMORY" or outcome.code == 137:  # 128 + SIGKILL
        return " (slurm.memory_gb may be too small)"
    return ""
