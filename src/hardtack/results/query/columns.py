"""A column of a table that a query sees: name, type, how the value is read, and a sentence.

Values come from files that may be anybody's: one that is not of its column's type becomes NULL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

TEXT, NUMBER, WHOLE, BOOL, TIME = pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.timestamp("us")
TEXTS = pa.list_(pa.string())


class Json:
    """Marks a column of JSON text; in SQL it is of the type JSON: `config->>'$.train.epochs'`."""


Type = Any  # a type of Arrow, or Json


@dataclass(frozen=True)
class Column:
    """A column of a table; `read` takes what a row is made of."""

    name: str
    type: Type
    sentence: str
    read: Callable[..., Any] = lambda *_: None

    @property
    def sql_type(self) -> str:
        names = {
            TEXT: "VARCHAR", NUMBER: "DOUBLE", WHOLE: "BIGINT", BOOL: "BOOLEAN", TIME: "TIMESTAMP", TEXTS: "VARCHAR[]"
        }  # fmt: skip
        return "JSON" if self.type is Json else names[self.type]


def make_table(columns: list[Column], rows: list[tuple[Any, ...]]) -> pa.Table:
    """An Arrow table; a value that is not of its column's type becomes NULL."""
    arrays, fields = [], []
    for column in columns:
        kind = TEXT if column.type is Json else column.type
        convert = to_json if column.type is Json else CONVERT[kind]
        arrays.append(pa.array([convert(column.read(*row)) for row in rows], kind))
        fields.append(pa.field(column.name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


# ---------------------------------------------------------------- values of any file as values of a column


def to_text(value: Any) -> str | None:
    """Text that can be stored as UTF-8: half of a surrogate pair, which JSON can hold, is replaced."""
    return None if value is None else str(value).encode("utf-8", errors="replace").decode("utf-8")


def to_number(value: Any) -> float | None:
    """NaN is NULL: SQL would sort it above every number."""
    try:
        number = float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
    return None if number is None or math.isnan(number) else number


def to_whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def to_time(value: Any) -> datetime | None:
    """A stored ISO time in UTC; NULL for a text that is none."""
    try:
        moment = datetime.fromisoformat(str(value))
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError):
        return None


def to_texts(value: Any) -> list[str | None]:
    return [to_text(item) for item in value]


def to_json(value: Any) -> str | None:
    """JSON text; what JSON cannot hold (infinity, dates of YAML) is written as text."""
    return None if value is None else to_text(json.dumps(_finite(value), ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


CONVERT: dict[pa.DataType, Callable[[Any], Any]] = {
    TEXT: to_text, NUMBER: to_number, WHOLE: to_whole, BOOL: lambda value: None if value is None else bool(value),
    TIME: to_time, TEXTS: to_texts,
}  # fmt: skip
