"""Whether other processes of the same job compute on this process's GPU: what it times there is not its own then."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_VARIABLE = "HARDTACK_SHARED_GPU"


def mark_gpu_as_shared(environment: MutableMapping[str, str]) -> None:
    """Tell a process with this environment that others use its GPU."""
    environment[_VARIABLE] = "1"


def shares_gpu() -> bool:
    """Whether this process has been told so."""
    return os.environ.get(_VARIABLE) == "1"
