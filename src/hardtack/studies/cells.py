"""What a study has measured: a value for each row, column and seed, with one value per image where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One column of one row, trained with one seed. Values are in the table's units (27.64 for 27.64 %).

    index    numbers of the images, increasing; None if the column is not a mean over images
    vector   the value of each of these images, whose mean is `value`
    """

    seed: int
    value: float
    n: int = 0
    low: float | None = None
    high: float | None = None
    index: np.ndarray | None = field(default=None, compare=False)
    vector: np.ndarray | None = field(default=None, compare=False)
    flags: tuple[dict[str, Any], ...] = ()
    run: str = ""  # the name of the run folder
    evaluation: str = ""
    result: float | None = (
        None  # the value of the run's result that this is; None if it was computed from something else
    )


Cells = Mapping[tuple[str, str], tuple[Measured, ...]]  # by row and column; one entry for each seed
