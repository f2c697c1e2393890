"""Which runs of studies must wait for which, where several are computed at the same time.

What is measured of a run may need other runs: it starts from another one's weights, or a column looks at another one's
model. The first in order that needs a run trains it, and those that need it later wait for that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import Unit, references


class RunOrder:
    """`touched`: by number, the runs that are read or written. `needs`: the numbers before it that a number waits for.

    `waiting`: the length of the longest chain that begins with a number, itself counted; the first of long chains are
    computed first.
    """

    def __init__(self, touched: Sequence[Sequence[Unit]]) -> None:
        first: dict[str, int] = {}
        self.needs: list[tuple[int, ...]] = []
        for number, runs in enumerate(touched):
            digests = [run.digest for run in runs]
            self.needs.append(tuple(sorted({first[digest] for digest in digests if digest in first})))
            for digest in digests:
                first.setdefault(digest, number)
        self.waiting = [1.0] * len(touched)
        for number in reversed(range(len(touched))):
            for needed in self.needs[number]:
                self.waiting[needed] = max(self.waiting[needed], 1 + self.waiting[number])


def runs_of(unit: Unit, scaled: ScaledStudy, units: Sequence[Unit]) -> Iterator[Unit]:
    """The run of a unit, those that it starts from, and those that its columns look at. `units`: all of its study."""
    yield from _with_starts(unit)
    for column in scaled.columns_of(unit.training):
        for other in references(column, unit, units):
            yield from _with_starts(other)


def _with_starts(unit: Unit | None) -> Iterator[Unit]:
    while unit is not None:
        yield unit
        unit = unit.start
