"""The contract of a tracker: a service that shows the metrics of training runs, such as TensorBoard.

    @trackers.register("mine", help="…")
    class Mine(Tracker):
        def __init__(self, run: TrackedRun) -> None: …
        def write(self, values, step): …

A tracker is named by `train.track=mine`. It may fail: training goes on, and what it missed is sent again later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hardtack.base.limits import shorten

Outcome = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is told when a training starts or is resumed.

    name       of the run
    folder     the run folder
    settings   the recipe, as one level: "train.epochs" → 10
    step       0, or the step from which the run is resumed
    id         what the tracker called this run before, if it is resumed
    """

    name: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    id: str | None = None


class Tracker:
    """Sends metrics somewhere. Only the first process of a training has trackers.

    The constructor raises a UserError if the service cannot be used.

    id            what the service calls the run: a resumed training gets it back, so that it continues the same run
    place         where a person finds the run, such as its URL
    sends_later   lines that were written may be lost when the process is killed
    """

    id: str = ""
    place: str = ""
    sends_later: bool = False

    def __init__(self, run: TrackedRun) -> None:
        """Open the run, or the one called `run.id`."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Add the numbers of one line of the log. After a resume lines may come a second time."""
        raise NotImplementedError

    def close(self, outcome: Outcome) -> None:
        """The training ended, was stopped by a signal, or failed."""


def shown(text: object) -> str:
    """An address, or an error message with addresses, short and without user names and passwords."""
    return shorten(re.sub(r"://[^/@\s]*@", "://", str(text).strip()), 160)
