"""Which run has which colour, on the page and in figures alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.results import Run, leaderboard

# Okabe and Ito's, told apart by colour-blind readers, and six more; page.css has the same, and others for the dark.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#b4528b", "#c98a00", "#56b4e9",
    "#7a5c2e", "#5a35c8", "#b3001b", "#7fa300", "#006a75", "#23262e",
)  # fmt: skip
FADED = "#bdb5a9"
INK = "#766d62"  # of what belongs to no run
SOLID = 6  # runs whose curves are solid; those of the others are dashed, for readers who see fewer colours

# The same as in page.css by day: accuracy from 0 to 1, and what became of the images under attack.
HEAT = ("#7a1f0e", "#c4502a", "#ec9c5c", "#f7d4a9", "#fdf3e3")
PARTS = {
    "standing": "#2f7d6b", "wrong": "#cfc8bc", "0": "#f2b134", "1": "#e07b39", "2": "#c44536", "3": "#8d2a4d",
    "4": "#5f3b7a", "5": "#3d4f8f", "6": "#7f7f7f",
}  # fmt: skip


def in_order(runs: Sequence[Run]) -> list[Run]:
    """As they are named while there are colours for all; else the best first, and the rest is faded."""
    if len(runs) <= len(COLOURS):
        return list(runs)
    place = _places(runs)
    return sorted(runs, key=lambda run: place.get(run.label, len(place)))


def who_is_coloured(runs: Sequence[Run]) -> str:
    """A sentence, where there are more runs than colours."""
    if len(runs) <= len(COLOURS):
        return ""
    ranked = len(_places(runs))
    if ranked >= len(COLOURS):
        return f"The best {len(COLOURS)} of {len(runs)} runs have a colour; the others are grey."
    if not ranked:
        return f"The first {len(COLOURS)} of {len(runs)} runs have a colour; the others are grey. No table ranks them."
    who = "the one that a table ranks" if ranked == 1 else f"the {ranked} that tables rank"
    return f"{len(COLOURS)} of {len(runs)} runs have a colour, {who} and the first of the others; the rest is grey."


def _places(runs: Sequence[Run]) -> dict[str, int]:
    """Those that stand in a table, the best first."""
    ranked = dict.fromkeys(row.run for table in leaderboard(runs) for row in table.rows)
    return {name: number for number, name in enumerate(ranked)}


def with_lanes(series: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a chart's series that have a colour of their own, if any: the others would only make it longer."""
    return [entry for entry in series if entry["run"] < len(COLOURS)] or list(series)


def colour(run: int | None) -> str:
    """Of no run: ink."""
    return INK if run is None else COLOURS[run] if run < len(COLOURS) else FADED
