"""A damaged run costs its own numbers, not the report of all runs.

Run folders may come from anybody, and a record can be valid and still impossible to draw: an analysis without its
fields, a value of 1e308. Only if something fails, every run is tried by itself; what cannot be shown is left out and
named in the run's `problems`, which the page lists.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.results import Run

Output = TypeVar("Output")

# what is left out, one after the other, until the rest can be shown
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("its analyses", ("findings",)),
    ("its example images", ("galleries",)),
    ("its training metrics", ("metrics",)),
    ("its configuration", ("config",)),
    ("its analyses, examples, metrics and configuration", ("findings", "galleries", "metrics", "config")),
    ("its results", ("results",)),
    ("all of it", ("findings", "galleries", "metrics", "config", "results")),
)


def with_sound_runs(runs: Sequence[Run], make: Callable[[Sequence[Run]], Output]) -> Output:
    """`make(runs)`; if that fails, again with the runs that fail by themselves reduced to what can be shown."""
    try:
        return make(runs)
    except UserError:
        raise
    except Exception:
        sound = [_reduced(run, make) for run in runs]
        if all(kept is run for kept, run in zip(sound, runs, strict=True)):
            raise  # no run fails by itself: the fault is not in a run
        return make(sound)


def _reduced(run: Run, make: Callable[[Sequence[Run]], Output]) -> Run:
    """The run itself if `make` works for it alone, else the run without the parts that cannot be shown."""
    try:
        make([run])
        return run
    except Exception as error:
        reason = f"{type(error).__name__}: {shorten(error)}"
    for what, fields in _PARTS:
        problem = f"{run.path}: {what}: cannot be shown, left out ({reason}); make the file again or remove it"
        empty: dict[str, Any] = {name: {} if name == "config" else [] for name in fields}
        kept = dataclasses.replace(run, problems=[*run.problems, problem], **empty)
        try:
            make([kept])
        except UserError:
            pass  # nothing is left of this run
        except Exception:
            continue
        warnings.warn(problem, stacklevel=2)
        return kept
    return run
