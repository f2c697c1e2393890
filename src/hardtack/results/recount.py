"""A result counted again from its verdict file: its value, its interval and its number of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hardtack.results.calibration import calibration_error, calibration_interval
from hardtack.results.intervals import bootstrap, wilson
from hardtack.results.metrics import per_image
from hardtack.results.record import Result

CALIBRATION = "expected_calibration_error"
WILSON, BOOTSTRAP = "wilson 95%", "bootstrap 95%"


class _Unknown:
    """A value that the verdict file does not give."""


UNKNOWN: Any = _Unknown()


class Recount(NamedTuple):
    """What the verdict file gives; `UNKNOWN` where it says nothing."""

    value: float
    n: int
    low: Any
    high: Any


def recount(result: Result, columns: Mapping[str, np.ndarray]) -> Recount | None:
    """The numbers of a result from the verdict columns; None if the columns do not have its values per image."""
    if result.metric == CALIBRATION and {"clean_certainty", "clean_correct"} <= set(columns):
        values = columns["clean_certainty"], columns["clean_correct"]
        return Recount(calibration_error(*values), len(values[0]), *calibration_interval(*values))
    vector = per_image(result, columns)
    if vector is None or not len(vector):
        return None
    if result.interval == WILSON and np.isin(vector, (0.0, 1.0)).all():
        low, high = wilson(int(vector.sum()), len(vector))
    elif result.interval == BOOTSTRAP and not (len(vector) == 1 and result.low is None):
        low, high = bootstrap(vector)
    else:
        low, high = UNKNOWN, UNKNOWN
    return Recount(float(vector.mean()), len(vector), low, high)
