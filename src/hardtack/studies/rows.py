"""One row of a study by itself: `hardtack train architectures/table2:cctt`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hardtack.base.config import parse_words
from hardtack.base.errors import UserError, did_you_mean
from hardtack.studies.study import SECTIONS
from hardtack.studies.unit import Unit, find_unit

OUTPUT = "runs/studies"
_OWN = ("scale", "seed", "output")


def row_recipes(reference: str, words: Iterable[str] = ()) -> list[tuple[str, dict[str, Any]]]:
    """The recipes of `STUDY:ROW[/TRAINING]` with their labels; a run comes after the one that it starts from.

    The scale is `paper`, as published, unless scale=… says otherwise. Runs go where the study itself looks for them.
    """
    values = parse_words(words)
    scale, seed = str(values.pop("scale", "paper")), int(values.pop("seed", 0))
    root = Path(str(values.pop("output", OUTPUT))).expanduser()
    for key in values:
        if key not in SECTIONS:
            known = [*_OWN, *SECTIONS]
            raise UserError(
                f"a row of a study has no setting '{key}'{did_you_mean(key, known)}; it has {', '.join(known)}"
            )
    units = find_unit(reference, scale=scale, seed=seed, words=values)
    return [(unit.label, unit.recipe_values(root)) for unit in in_order(units)]


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """These units and all that they start from, each once and after its own start."""
    ordered: dict[Unit, None] = {}

    def add(unit: Unit) -> None:
        if unit.start is not None:
            add(unit.start)
        ordered.setdefault(unit)

    for unit in units:
        add(unit)
    return list(ordered)
