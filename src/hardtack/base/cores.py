"""CPU cores that this process may use, also where several processes share one machine."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_VARIABLE = "HARDTACK_CORES"


def give_share_of_cores(environment: MutableMapping[str, str], cores: int) -> None:
    """Tell a process with this environment how many cores are its own."""
    environment[_VARIABLE] = str(max(1, cores))


def share_of_cores() -> int:
    """How many cores are this process's own; all that it may use if nobody has said so."""
    told = os.environ.get(_VARIABLE, "")
    return int(told) if told.isdecimal() and int(told) > 0 else usable_cores()


def usable_cores() -> int:
    """The cores that the system lets this process use: a Slurm job or a container may have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
