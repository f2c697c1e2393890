"""CPU cores that a process may use for decoding images, where several processes share one machine."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_VARIABLE = "HARDTACK_CORES"


def give_share_of_cores(environment: MutableMapping[str, str], cores: int) -> None:
    """Tell a process with this environment how many cores are its own."""
    environment[_VARIABLE] = str(max(1, cores))


def share_of_cores() -> int:
    """How many cores are this process's own; all of the machine's if nobody has said so."""
    told = os.environ.get(_VARIABLE, "")
    return int(told) if told.isdecimal() and int(told) > 0 else os.cpu_count() or 1
