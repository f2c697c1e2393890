"""The numbers behind one linear combination of cells: its value for each seed and for each image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hardtack.studies.cells import Cells, Measured
from hardtack.studies.claim_expression import Cell

_LARGEST = {"percent": 100.0, "fraction": 1.0}  # the value of an image that is correct, by the column's unit
DEFAULT_UNIT = "percent"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A combination Σ coefficient·cell, paired by seed and by image.

    per_seed      its value for each seed (S,)
    per_image     its value for each image, averaged over the seeds (n,); None if no cell has one value per image
    complete      every cell has one value per image
    exchangeable  exchanging rows turns it into its negative, as in a difference of two rows of one column
    bounds        the least and the largest value that an image can have; None if a column is not a share
    binary        the vectors (n,) of the cells, 0 or 1, if there is one seed and every column is right or wrong
    largest       the value of an image that is right: 100 or 1; 0 if no column is a share
    magnitude     the sum of the absolute values of its terms
    """

    coefficients: tuple[float, ...]
    per_seed: np.ndarray
    per_image: np.ndarray | None
    complete: bool
    exchangeable: bool
    bounds: tuple[float, float] | None
    binary: tuple[np.ndarray, ...] | None
    largest: float
    magnitude: float

    @property
    def value(self) -> float:
        return float(self.per_seed.mean())

    @property
    def n(self) -> int:
        return 0 if self.per_image is None else len(self.per_image)

    @property
    def seeds(self) -> int:
        return len(self.per_seed)


def gather(coefficients: Mapping[Cell, float], cells: Cells, units: Mapping[str, str]) -> Sample | str:
    """The sample of a combination, or the reason why its cells cannot be combined. Every cell must be measured."""
    by_seed = {cell: {measured.seed: measured for measured in cells[cell]} for cell in coefficients}
    seeds = sorted(set.intersection(*(set(measured) for measured in by_seed.values())))
    if not seeds:
        return "the cells have no seed in common"
    table = {cell: [by_seed[cell][seed] for seed in seeds] for cell in coefficients}
    with_images = [cell for cell in coefficients if all(_vector(measured) is not None for measured in table[cell])]
    images = [np.asarray(measured.index) for cell in with_images for measured in table[cell]]
    if any(not np.array_equal(images[0], other) for other in images[1:]):
        return "the cells were measured on different images, which cannot be paired"
    weights = np.array(list(coefficients.values()))
    means = np.array([[_mean(measured) for measured in table[cell]] for cell in coefficients])
    if not np.isfinite(means).all():
        return "a value is not a finite number"
    vectors = {cell: np.array([_vector(measured) for measured in table[cell]]) for cell in with_images}
    per_image = sum(coefficients[cell] * vectors[cell].mean(axis=0) for cell in with_images) if with_images else None
    largest = [_largest(cell, vectors, units) for cell in with_images]
    return Sample(
        coefficients=tuple(weights.tolist()),
        per_seed=weights @ means,
        per_image=per_image,
        complete=len(with_images) == len(coefficients),
        exchangeable=_exchangeable(coefficients),
        bounds=_bounds([coefficients[cell] for cell in with_images], largest),
        binary=_binary([vectors[cell] for cell in with_images], largest, len(coefficients)),
        magnitude=float(np.abs(weights[:, None] * means).sum(axis=0).max()),
        largest=max((value or 0.0 for value in largest), default=0.0),
    )


def _vector(measured: Measured) -> np.ndarray | None:
    return None if measured.index is None else measured.vector


def _mean(measured: Measured) -> float:
    vector = _vector(measured)
    return measured.value if vector is None else float(np.mean(vector))


def _largest(cell: Cell, vectors: Mapping[Cell, np.ndarray], units: Mapping[str, str]) -> float | None:
    """100 or 1 if the column is a share of the images; None if it is another number, or its values contradict that."""
    largest = _LARGEST.get(units.get(cell[1], DEFAULT_UNIT))
    values = vectors[cell]
    return largest if largest is not None and values.min() >= 0 and values.max() <= largest else None


def _exchangeable(coefficients: Mapping[Cell, float]) -> bool:
    columns = {column for _, column in coefficients}
    per_column = [sorted(value for cell, value in coefficients.items() if cell[1] == column) for column in columns]
    return all(np.allclose(values, [-value for value in reversed(values)]) for values in per_column)


def _bounds(coefficients: list[float], largest: list[float | None]) -> tuple[float, float] | None:
    known = [value for value in largest if value is not None]
    if not known or len(known) < len(largest):
        return None
    ends = [coefficient * value for coefficient, value in zip(coefficients, known, strict=True)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)


def _binary(vectors: list[np.ndarray], largest: list[float | None], cells: int) -> tuple[np.ndarray, ...] | None:
    if len(vectors) < cells or any(len(values) > 1 for values in vectors) or None in largest or len(set(largest)) > 1:
        return None
    scaled = [values[0] / largest[0] for values in vectors]
    return tuple(scaled) if all(np.isin(values, (0.0, 1.0)).all() for values in scaled) else None
