"""Which units of a study must wait for which, where several are computed at the same time.

Two units may need the same run: one starts from the other's weights, looks at its model, or has the same settings. The
first in order trains it, and the others wait for that unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hardtack.studies.cell_store import FOLDER
from hardtack.studies.measure import id_of
from hardtack.studies.measuring import Measuring
from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import Unit, references


class UnitOrder:
    """`needs`: by the number of a unit, the units before it that it waits for.

    `waiting`: the length of the longest chain of units that begins with it, itself counted; the first of long chains
    are computed first.
    """

    def __init__(self, scaled: ScaledStudy, units: Sequence[Unit], measuring: Measuring) -> None:
        self.scaled, self.units, self.measuring = scaled, units, measuring
        self._runs = [list(self._all_runs(unit)) for unit in units]
        first: dict[str, int] = {}
        self.needs: list[tuple[int, ...]] = []
        for number, runs in enumerate(self._runs):
            digests = [run.digest for run in runs]
            self.needs.append(tuple(sorted({first[digest] for digest in digests if digest in first})))
            for digest in digests:
                first.setdefault(digest, number)
        self.waiting = [1.0] * len(units)
        for number in reversed(range(len(units))):
            for needed in self.needs[number]:
                self.waiting[needed] = max(self.waiting[needed], 1 + self.waiting[number])

    def folders(self, number: int, root: Path) -> list[Path]:
        """The run folders and cells that a unit reads or writes, as far as they exist."""
        unit = self.units[number]
        columns = self.scaled.columns_of(unit.training)
        ids = [id_of(unit, column, columns, self.measuring) for column in columns]
        cells = [root / FOLDER / f"{id}.{kind}" for id in ids for kind in ("json", "npz")]
        runs = {run.folder(root) for run in self._runs[number]}
        return [place for place in [*sorted(runs), *cells] if place.exists()]

    def _all_runs(self, unit: Unit) -> Iterator[Unit]:
        """The run of a unit, those that it starts from, and those that its columns look at."""
        yield from _with_starts(unit)
        for column in self.scaled.columns_of(unit.training):
            for other in references(column, unit, self.measuring.units):
                yield from _with_starts(other)


def _with_starts(unit: Unit | None) -> Iterator[Unit]:
    while unit is not None:
        yield unit
        unit = unit.start
