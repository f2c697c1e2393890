"""A cell of a study's table in words: the paper's number, ours with its interval, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.report.study_view import StudyCell, StudyColumn, StudyRow, StudyView, cell_of, is_red

NONE = "—"
UNITS = {"percent": "%"}


@dataclass(frozen=True, kw_only=True)
class CellText:
    """Texts with the column's digits; `—` where there is no number, an empty interval where there is none."""

    paper: str
    ours: str
    interval: str
    difference: str
    red: bool


def cell_text(cell: StudyCell, column: StudyColumn) -> CellText:
    bounded = cell["low"] is not None and cell["high"] is not None
    interval = f"[{number(cell['low'], column)}, {number(cell['high'], column)}]" if bounded else ""
    return CellText(
        paper=number(cell["paper"], column),
        ours=number(cell["value"], column),
        interval=interval,
        difference=difference(cell["difference"], column),
        red=is_red(cell),
    )


def row_texts(row: StudyRow, study: StudyView) -> list[CellText]:
    """A text for every column."""
    return [cell_text(cell_of(row, column["name"]), column) for column in study["columns"]]


def number(value: float | None, column: StudyColumn) -> str:
    """With the digits that the paper prints; large counts with commas."""
    return NONE if value is None else f"{value:,.{column['digits']}f}".replace("-", "−")


def difference(value: float | None, column: StudyColumn) -> str:
    """With a sign; zero at these digits has none."""
    if value is None:
        return NONE
    text = f"{value:+,.{column['digits']}f}"
    return text.replace("-", "−") if any(digit in text for digit in "123456789") else text[1:]


def head(column: StudyColumn) -> str:
    """The column's title with its unit: `AA linf (%)`."""
    unit = UNITS.get(column["unit"], "")
    return f"{column['title']} ({unit})" if unit else column["title"]
