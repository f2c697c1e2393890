"""One row of a study by itself: `hardtack train architectures/table2:cctt`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from hardtack.base.config import build, parse_words
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.studies.study import SECTIONS
from hardtack.studies.unit import Unit, find_unit

OUTPUT = "runs/studies"
_OWN = ("scale", "seed", "output")


@dataclass(frozen=True, kw_only=True)
class RowRequest:
    """The words of one row: its scale, which seed (0, 1, 2 …), and the folder of the studies."""

    scale: str = "paper"
    seed: Annotated[int, Field(ge=0)] = 0
    output: str = OUTPUT


def row_recipes(reference: str, words: Iterable[str] = ()) -> list[tuple[str, dict[str, Any]]]:
    """The recipes of `STUDY:ROW[/TRAINING]` with their labels; a run comes after the one that it starts from.

    The scale is `paper`, as published, unless scale=… says otherwise. Runs go where the study itself looks for them.
    """
    values = parse_words(words)
    for key in values:
        if key not in (*_OWN, *SECTIONS):
            known = [*_OWN, *SECTIONS]
            raise UserError(
                f"a row of a study has no setting '{key}'{did_you_mean(key, known)}; it has {', '.join(known)}"
            )
    request: RowRequest = build(RowRequest, {key: value for key, value in values.items() if key in _OWN})
    sections = {key: value for key, value in values.items() if key in SECTIONS}
    root = local_path(request.output)
    units = find_unit(reference, scale=request.scale, seed=request.seed, words=sections)
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
