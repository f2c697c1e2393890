"""What charts of every kind are made of: the switch between views, and the table of numbers behind a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

Chart = dict[str, Any]
View = dict[str, Any]  # what a chart shows at one position of its switch
Table = dict[str, Any]
Look = Literal["solid", "dashed", "open"]


class KeyEntry(TypedDict):
    """What a colour or a look stands for, in a chart whose colours are not those of the runs; no run: ink."""

    name: str
    run: int | None
    look: Look


def switch(label: str, views: Sequence[View], chosen: int = 0) -> dict[str, Any]:
    """What a reader switches between: `label` stands before the names of the views."""
    return {"label": label, "options": [view["name"] for view in views], "chosen": chosen}


def numbers(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> Table:
    """The table behind a chart, for readers of numbers and of screens."""
    return {"title": title, "head": list(head), "rows": [list(row) for row in rows]}


def rounded(value: float | None) -> float | None:
    """To five decimals: more would make the page larger and no chart different."""
    return None if value is None else round(float(value), 5)
