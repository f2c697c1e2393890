"""The answer to a query: its columns and rows, as a table for the screen, CSV, JSON, parquet or a data frame."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hardtack.base.errors import UserError
from hardtack.base.files import atomic, write_text
from hardtack.base.printable import printable
from hardtack.results.export import csv_cell

SHOWN = 100  # rows on a screen
WIDEST = 60  # characters of a cell on a screen


class Answer:
    """Columns and rows. `problems` names what could not be read in the run folders and was left out.

    Of two columns of one name the second gets a number: run, run_1.

    len(answer), iteration and answer[0] give rows as mappings; `answer.column("value")` one column as a list.
    """

    def __init__(self, table: pa.Table, problems: Sequence[str] = ()) -> None:
        self._table = table.rename_columns(list(_distinct(table.column_names)))
        self.problems = tuple(problems)

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Rows as tuples of Python values."""
        return list(zip(*(map(_python, column.to_pylist()) for column in self._table.columns), strict=True))

    def column(self, name: str) -> list[Any]:
        """The values of one column."""
        from hardtack.base.errors import did_you_mean

        if name not in self.columns:
            raise UserError(f"the answer has no column '{name}'{did_you_mean(name, self.columns)}")
        return [row[self.columns.index(name)] for row in self.rows]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_dicts())

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.to_dicts()[row]

    def to_dicts(self) -> list[dict[str, Any]]:
        """A mapping from column to value for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return self._table

    def to_frame(self) -> Any:
        """The answer as a data frame of pandas, where it is installed."""
        try:
            import pandas
        except ImportError:
            raise UserError("data frames need pandas: pip install 'hardtack[frames]'") from None
        return pandas.DataFrame(self.to_dicts(), columns=self.columns)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Answer({len(self)} rows: {', '.join(self.columns)})"

    def text(self, most: int = SHOWN) -> str:
        """A table for the screen: at most so many rows, and long texts cut."""
        head = [_shown(name) for name in self.columns]
        cells = [[_shown(value) for value in row] for row in self.rows[:most]]
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        right = [_is_number(kind) for kind in self._table.schema.types]
        lines = [head, *cells]
        text = [
            "  ".join(cell.rjust(w) if at else cell.ljust(w) for cell, w, at in zip(line, widths, right, strict=True))
            for line in lines
        ]
        if len(self) > most:
            text.append(f"… {len(self) - most:,} more rows (format=csv, json or parquet has all of them)")
        return "\n".join(line.rstrip() for line in text) if len(self) else f"{'  '.join(head)}\n(no rows)"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_shown(value))}</td>' for value in row)}</tr>"
            for row in self.rows[:SHOWN]
        )
        more = f"<p>… {len(self) - SHOWN:,} more rows</p>" if len(self) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    # ------------------------------------------------------------ files

    def csv(self) -> str:
        """Comma-separated values; a text that a spreadsheet would take for a formula gets an apostrophe."""
        file = io.StringIO()
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(map(csv_cell, self.columns))
        lines.writerows([csv_cell(_plain(value)) for value in row] for row in self.rows)
        return file.getvalue()

    def json(self) -> str:
        """A list of objects, one line each."""
        rows = ",\n".join(json.dumps(_strict(row), ensure_ascii=False, allow_nan=False) for row in self.to_dicts())
        return f"[\n{rows}\n]\n" if rows else "[]\n"

    def write(self, path: str | Path, format: str) -> Path:
        """Write the answer as csv, json, parquet or text (`table`)."""
        path = Path(path)
        if format == "parquet":
            with atomic(path) as file:
                pq.write_table(self._table, file, compression="zstd")
            return path
        texts = {"csv": self.csv, "json": self.json, "table": lambda: self.text(len(self)) + "\n"}
        return write_text(path, texts[format]())


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """The names, with a number behind each that an earlier column has: a mapping would lose one of the two."""
    used: set[str] = set()
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        used.add(made := name if name not in used else next(text for text in numbered if text not in {*used, *names}))
        yield made


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _python(value: Any) -> Any:
    """Counts and sums are decimals in SQL, and whole numbers or floats in Python."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _plain(value: Any) -> Any:
    """A value for a text file: times in ISO's form, lists and structures as JSON."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(_strict(value), ensure_ascii=False)
    return value


def _strict(value: Any) -> Any:
    """A value that JSON can hold: times and infinity as text."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    value = _python(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="minutes")
    text = " ".join(printable(_plain(value)).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
