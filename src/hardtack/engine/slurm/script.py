"""The bash script of a job array. Every word that is not hardtack's own is quoted.

sbatch reads the `#SBATCH` lines with the quoting rules of a shell, so that `shlex.quote` serves both readers.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hardtack.base.errors import UserError
from hardtack.engine.slurm.settings import SlurmSettings, refuse_control
from hardtack.engine.slurm.task import ARRAY_SIZE, Task, check_folder, job_name, tasks_digest


def array_script(
    tasks: Sequence[Task], settings: SlurmSettings, *, folder: str | Path, title: str, part: int = 0,
    launch: Sequence[str] = (),
) -> str:  # fmt: skip
    """The script that runs the task with the number SLURM_ARRAY_TASK_ID.

    `launch` are shell lines that change the task's command, `"$@"`, before it is run.

    A list of more than 1000 tasks has several scripts: `part` 1 holds the tasks 1000 to 1999. A task's exit code is
    written to `folder/task-N.exit` beside the array's job id: Slurm itself forgets it after some minutes.
    """
    folder = check_folder(folder)
    members = tasks[part * ARRAY_SIZE : (part + 1) * ARRAY_SIZE]
    if not members:
        raise UserError(f"there are no tasks for part {part} of the array")
    log = f"task-{part}%3a.log" if part else "task-%a.log"  # %3a: three digits, so that part 1 begins at task-1000
    throttle = f"%{settings.at_once}" if settings.at_once is not None else ""
    options = [
        ("job-name", job_name(title, digest=tasks_digest(tasks, folder), part=part)),
        ("array", f"0-{len(members) - 1}{throttle}"),
        ("nodes", str(settings.nodes)),
        ("ntasks-per-node", "1"),
        *settings.lines(),
        *log_options(folder, log),
    ]
    lines = [
        *head(options, title=title),
        *setup_lines(settings),
        'case "$SLURM_ARRAY_TASK_ID" in',
        *(line for index, task in enumerate(members) for line in _case(index, task)),
        '*) echo "hardtack: the array has no task $SLURM_ARRAY_TASK_ID" >&2; exit 1 ;;',
        "esac",
        "",
        f"exit_file={shlex.quote(str(folder))}/task-$(({part * ARRAY_SIZE} + SLURM_ARRAY_TASK_ID)).exit",
        'rm -f "$exit_file"',
        'echo "== job ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID on $(hostname), $(date)"',
        *launch,
        '"$@" && code=0 || code=$?',
        'echo "$SLURM_ARRAY_JOB_ID $code" > "$exit_file.part"',
        'mv "$exit_file.part" "$exit_file"',
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _case(index: int, task: Task) -> Iterator[str]:
    yield f"{index})  # {task.label}"
    for name, value in task.env.items():
        yield f"  export {name}={shlex.quote(value)}"
    yield f"  set -- {shlex.join(task.command)} ;;"


# ---------------------------------------------------------------- what every script begins with


def log_options(folder: Path, log: str) -> list[tuple[str, str | None]]:
    """Where a script runs and where it writes. Logs are appended to: a second attempt keeps what the first said."""
    output = f"{str(folder).replace('%', '%%')}/{log}"
    directory = refuse_control(os.getcwd(), what="the path of the working directory")
    return [("chdir", directory), ("output", output), ("open-mode", "append"), ("requeue", None)]


def head(options: Iterable[tuple[str, str | None]], *, title: str) -> list[str]:
    """The first lines: options for sbatch, and a shell that stops at the first fault."""
    named = [f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={_quote(value)}" for name, value in options]
    title = refuse_control(title, what="the title of the job")
    return ["#!/bin/bash", f"# {title}: written by hardtack", *named, "", "set -euo pipefail"]


def setup_lines(settings: SlurmSettings) -> list[str]:
    """The user's own lines; `module` and `conda` read variables that are not set."""
    lines = ["export PYTHONUNBUFFERED=1"]
    if settings.setup:
        lines += ["set +u", *settings.setup.split("\n"), "set -u"]
    return [*lines, ""]


def _quote(value: str) -> str:
    """As shlex.quote, but without quotes where neither reader needs them (`0-9%4`)."""
    return value if value and all(letter.isalnum() or letter in "%,:=./_-" for letter in value) else shlex.quote(value)
