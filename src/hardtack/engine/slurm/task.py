"""A task: one command line with its environment. A list of tasks has a name that changes with every part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.engine.slurm.settings import refuse_control

ARRAY_SIZE = 1000  # Slurm's default MaxArraySize is 1001: longer lists become several arrays


@dataclass(frozen=True)
class Task:
    """What one member of a job array runs. `label` names it in messages."""

    label: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_control(self.label, what="the label of a task")
        if not self.command:
            raise UserError(f"the task '{self.label}' has no command")
        for word in self.command:
            refuse_control(word, what=f"the command of the task '{self.label}'")
        for name, value in self.env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise UserError(f"the task '{self.label}': {name!r} is not the name of an environment variable")
            refuse_control(value, what=f"the environment variable {name} of the task '{self.label}'")


def check_folder(folder: str | Path) -> Path:
    """The absolute path of the folder for scripts and logs.

    Slurm reads `%` and a backslash in the path of a log: the first can be doubled, the second cannot.
    """
    path = Path(folder).absolute()
    refuse_control(str(path), what="the path of the folder for the Slurm logs")
    if "\\" in str(path):
        raise UserError(f"{path}: Slurm cannot write logs into a folder whose path has a backslash")
    return path


def tasks_digest(tasks: Sequence[Task], folder: Path) -> str:
    """16 hexadecimal digits that stand for exactly these tasks with this folder."""
    described = [[task.label, list(task.command), dict(task.env)] for task in tasks]
    return json_digest({"tasks": described, "folder": str(folder)})[:16]


def job_name(title: str, *, digest: str, part: int = 0) -> str:
    """The name of an array in the queue: the title for people, the digest and the part for hardtack."""
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", title).strip("-")[:40] or "hardtack"
    return f"{readable}-{digest}-{part}"


def parse_name(name: str) -> tuple[str, int] | None:
    """Digest and part from the name of a job; None for a job that is not hardtack's."""
    match = re.fullmatch(r".*-([0-9a-f]{16})-([0-9]{1,6})", name)
    return (match[1], int(match[2])) if match else None


def log_path(folder: Path, position: int) -> Path:
    return folder / f"task-{position}.log"


def exit_path(folder: Path, position: int) -> Path:
    return folder / f"task-{position}.exit"
