"""A Result: one number with its interval, how it was measured, and its provenance.

It has only plain numbers and text, so that a line of `results.jsonl` can be read without hardtack.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.limits import check_depth, shorten
from hardtack.results.intervals import Paired, bootstrap, paired, wilson

__all__ = ["Paired", "Result", "bootstrap", "comparable", "from_json", "paired", "to_json", "wilson"]

LEVELS = ("red", "yellow")
# suites of results that are no evaluation of their own
PROTOCOL = "protocol"
ANALYSIS = "analysis"
REPORTED = "reported"  # also the source of numbers that were imported, not measured here

# Settings that do not change what an attack measures, or that `threat` already contains.
INCIDENTAL_SETTINGS = frozenset({"seed", "batch_size", "chunk_size", "device", "compile", "eps", "threat"})


LONGEST_TEXT = 20_000  # characters of one field
_STORED_TYPES: dict[str, Any] = {
    "str": str, "float": (int, float), "int": int, "dict": dict, "tuple": (list, tuple),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Result:
    """One number. `value`, `low` and `high` of an accuracy are fractions in [0, 1].

    A number reported by others has `extra["source"] == "reported"`, and n = 0 if the number of images is not known.
    A flag is `{"level": "red" | "yellow", "code": …, "message": …}`; a bare string becomes a yellow one.
    """

    metric: str
    value: float
    n: int
    suite: str
    data: str
    evaluation: str
    low: float | None = None
    high: float | None = None
    interval: str = "wilson 95%"
    threat: str | None = None
    attack: str | None = None
    attack_settings: dict[str, Any] = field(default_factory=dict)
    protocol: str = ""
    data_description: str = ""
    run: str = ""
    model: str = ""
    checkpoint: str | None = None
    weights_sha256: str | None = None
    seed: int | None = None
    precision: str = ""
    device: str = ""
    flags: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    seconds: float | None = None
    verdicts: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Values are converted so that every record equals the record read from its own JSON.
        for name in ("attack_settings", "versions", "extra"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        object.__setattr__(self, "flags", tuple(_flag(flag) for flag in self.flags))
        for name in ("value", "low", "high", "seconds"):
            number = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, _finite(number, f"{self.metric}.{name}"))
        object.__setattr__(self, "n", int(self.n))


def to_json(result: Result) -> str:
    """The record as one line of JSON; `from_json` gives back an equal record."""
    return json.dumps(dataclasses.asdict(result), allow_nan=False, ensure_ascii=False)


def from_json(line: str) -> Result:
    """The record in one line of JSON. Fields of a newer version are kept under `extra`."""
    check_depth(line)
    values = json.loads(line)
    if not isinstance(values, dict):
        raise UserError(f"expected a JSON object, found {type(values).__name__}")
    fields = {item.name: item for item in dataclasses.fields(Result)}
    required = [name for name, item in fields.items() if _is_required(item)]
    missing = [name for name in required if name not in values]
    if missing:
        raise UserError(f"a result without {', '.join(missing)}")
    own = {name: value for name, value in values.items() if name in fields}
    newer = {name: value for name, value in values.items() if name not in fields}
    for name, value in own.items():
        _check_type(name, value, str(fields[name].type))
    if newer:
        own["extra"] = {**own.get("extra", {}), **newer}
    return Result(**own)


def _check_type(name: str, value: Any, annotation: str) -> None:
    """Whether a stored field is of the type that all readers of results rely on."""
    kind = next(kind for start, kind in _STORED_TYPES.items() if annotation.startswith(start))
    optional = value is None and annotation.endswith("None")
    if not optional and (not isinstance(value, kind) or isinstance(value, bool)):
        raise UserError(f"the field '{name}' is {shorten(repr(value))}, expected {annotation}")
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise UserError(f"the field '{name}' has {len(value)} characters, and the limit is {LONGEST_TEXT}")
    if isinstance(value, int) and abs(value) > 2**63:
        raise UserError(f"the field '{name}' is a number of {value.bit_length()} bits, and the limit is 64")


def comparable(result: Result) -> tuple[Any, ...]:
    """The key of comparable results: two results may share a column exactly if their keys are equal.

    `extra["source"]` ("official" or "regenerated" files, or "reported") is part of the key.
    """
    return (*same_table(result), result.threat)


def same_table(result: Result) -> tuple[Any, ...]:
    """`comparable` without the threat: the columns of one table differ only in the threat."""
    settings = _essential(result.attack_settings)
    return (
        result.metric,
        result.suite,
        result.data,
        result.n,
        result.attack,
        json.dumps(settings, sort_keys=True),
        result.protocol,
        result.precision,
        result.data_description,
        str(result.extra.get("source", "")),
    )


def _essential(settings: Any) -> Any:
    """Settings, and those of every stage of a list, without the incidental ones."""
    if isinstance(settings, dict):
        return {key: _essential(value) for key, value in settings.items() if key not in INCIDENTAL_SETTINGS}
    return [_essential(item) for item in settings] if isinstance(settings, list) else settings


def _is_required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _plain(value: Any) -> Any:
    """The value as JSON would return it: lists for tuples, Python numbers for numpy's, text for other types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # JSON has no infinity: it is stored as text, which can still be compared.
        return float(value) if math.isfinite(value) else str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


def _flag(flag: Any) -> dict[str, Any]:
    if not isinstance(flag, Mapping):
        return {"level": "yellow", "code": "note", "message": str(flag)}
    values = {"level": "yellow", "code": "note", "message": "", **_plain(flag)}
    if values["level"] not in LEVELS:
        raise UserError(f"a flag's level is one of {', '.join(LEVELS)}, found {values['level']!r}")
    return values


def _finite(number: Any, name: str) -> float:
    number = float(number)
    if not math.isfinite(number):
        raise UserError(f"{name} is {number}; a result must be a finite number")
    return number
