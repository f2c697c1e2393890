"""Results as plain dictionaries and as data frames of pandas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hardtack.base.errors import UserError
from hardtack.results.record import Result

if TYPE_CHECKING:
    import pandas

# of tables with one row for each number, in files and in data frames
COLUMNS: dict[str, Callable[[Result], object]] = {
    "model": lambda result: result.model,
    "checkpoint": lambda result: result.checkpoint,
    "metric": lambda result: result.metric,
    "value": lambda result: result.value,
    "low": lambda result: result.low,
    "high": lambda result: result.high,
    "interval": lambda result: result.interval,
    "n": lambda result: result.n or None,
    "threat": lambda result: result.threat,
    "attack": lambda result: result.attack,
    "suite": lambda result: result.suite,
    "data": lambda result: result.data,
    "data_description": lambda result: result.data_description,
    "protocol": lambda result: result.protocol,
    "column": lambda result: result.extra.get("column"),
    "source": lambda result: result.extra.get("source"),
    "flags": lambda result: " ".join(f"{flag['level']}:{flag['code']}" for flag in result.flags),
    "precision": lambda result: result.precision,
    "seed": lambda result: result.seed,
    "created": lambda result: result.created,
    "weights_sha256": lambda result: result.weights_sha256,
    "evaluation": lambda result: result.evaluation,
}


def result_dicts(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The whole records, as they are stored."""
    return [dataclasses.asdict(result) for result in results]


def result_frame(results: Iterable[Result]) -> pandas.DataFrame:
    """One row for each number, with the columns of `hardtack export`."""
    rows = [{name: read(result) for name, read in COLUMNS.items()} for result in results]
    return data_frame(rows, columns=list(COLUMNS))


def data_frame(values: Any, *, columns: list[str] | None = None) -> pandas.DataFrame:
    """A data frame, where pandas is installed."""
    try:
        import pandas
    except ImportError:
        raise UserError(
            "data frames need pandas: pip install 'hardtack[frames]'; to_dict() has the same numbers without it"
        ) from None
    return pandas.DataFrame(dict(values) if isinstance(values, Mapping) else values, columns=columns)
