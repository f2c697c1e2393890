"""What squeue says about the arrays of a list of tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from hardtack.engine.slurm.command import call
from hardtack.engine.slurm.task import ARRAY_SIZE, parse_name

# every other state (pending, running, suspended, completing, requeued, one of a later Slurm) counts as in the queue:
# a task taken for ended by mistake would run twice
ENDED = {
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
}  # fmt: skip
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "CONFIGURING"}
_FIELDS = "%F|%K|%T|%r|%j"  # array's job id, number in the array, state, reason, name


@dataclass(frozen=True)
class QueuedTask:
    """One member of an array, as the queue shows it. `position` is that in the list of tasks."""

    job: int
    position: int
    state: str
    reason: str
    digest: str

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING


def read_queue() -> list[QueuedTask]:
    """All tasks of hardtack's arrays that belong to this user, with those that ended some minutes ago. One call."""
    user = f"--user={os.getuid()}"
    return parse_queue(call(["squeue", "--noheader", "--array", "--states=all", user, f"--format={_FIELDS}"]))


def parse_queue(text: str) -> list[QueuedTask]:
    """The lines of squeue; lines of other jobs are left out."""
    return [row for line in text.splitlines() if (row := _parse_line(line)) is not None]


def _parse_line(line: str) -> QueuedTask | None:
    fields = [part.strip() for part in line.split("|", 4)]
    named = parse_name(fields[4]) if len(fields) == 5 else None
    if named is None or not fields[0].isdecimal() or not fields[1].isdecimal():
        return None
    digest, part = named
    position = part * ARRAY_SIZE + int(fields[1])
    state = fields[2].split()[0].rstrip("+") if fields[2] else ""  # `CANCELLED by 1000`
    return QueuedTask(int(fields[0]), position, state, fields[3], digest)


def compress(numbers: Iterable[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7: how sbatch takes a list of task numbers."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
