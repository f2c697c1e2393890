"""What a claim says, as sums of cells: the result of reading its text (`claim_parser`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Cell = tuple[str, str]  # row and column


@dataclass(frozen=True, kw_only=True)
class Term:
    """`factor` times a cell, a mean of cells or a trend over cells of one column."""

    kind: Literal["cell", "mean", "trend"]
    column: str
    rows: tuple[str, ...]
    factor: float = 1.0
    group: str = ""

    def coefficients(self) -> list[tuple[Cell, float]]:
        if self.kind == "trend":
            middle = (len(self.rows) - 1) / 2
            spread = sum((step - middle) ** 2 for step in range(len(self.rows)))
            weights = [(step - middle) / spread for step in range(len(self.rows))]
        else:
            weights = [1 / len(self.rows)] * len(self.rows)
        return [((row, self.column), self.factor * weight) for row, weight in zip(self.rows, weights, strict=True)]


@dataclass(frozen=True)
class Linear:
    """A sum of terms and a constant."""

    terms: tuple[Term, ...] = ()
    constant: float = 0.0

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.terms + other.terms, self.constant + other.constant)

    def times(self, factor: float) -> Linear:
        terms = tuple(replace(term, factor=term.factor * factor) for term in self.terms)
        return Linear(terms, self.constant * factor)

    def coefficients(self) -> dict[Cell, float]:
        """The coefficient of each cell, in the order in which the claim names them; cells that cancel are left out."""
        sums: dict[Cell, float] = {}
        for term in self.terms:
            for cell, weight in term.coefficients():
                sums[cell] = sums.get(cell, 0.0) + weight
        largest = max(map(abs, sums.values()), default=0.0)
        return {cell: weight for cell, weight in sums.items() if abs(weight) > 1e-12 * largest}


@dataclass(frozen=True)
class Comparison:
    """Each part (cells and a constant) is above 0, or below 0."""

    parts: tuple[Linear, ...]
    above: bool


@dataclass(frozen=True)
class Equivalence:
    """Each part lies between -margin and margin."""

    parts: tuple[Linear, ...]
    margin: float


@dataclass(frozen=True, kw_only=True)
class RankCorrelation:
    """Spearman's correlation of two columns over rows is above, or below, a number."""

    first: str
    second: str
    rows: tuple[str, ...]
    all_rows: bool  # the claim names no rows: those that were measured count
    above: bool
    number: float


@dataclass(frozen=True)
class Claim:
    text: str
    test: Comparison | Equivalence | RankCorrelation

    def cells(self) -> tuple[Cell, ...]:
        """All cells that the claim names, each once."""
        if isinstance(self.test, RankCorrelation):
            columns = (self.test.first, self.test.second)
            return tuple((row, column) for row in self.test.rows for column in columns)
        return tuple(dict.fromkeys(cell for part in self.test.parts for cell in part.coefficients()))
