"""A protocol: columns in order, each an evaluation and which of its numbers is meant.

One YAML file each. Its version goes up with every change that could move a number, and results carry it: numbers of two
versions never stand in one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardtack.base.config import build, read_yaml
from hardtack.base.errors import UserError, did_you_mean

FOLDER = Path(__file__).resolve().parent / "protocols"
_ROBUST = "robust_accuracy"
_OF_COLUMN = ("metric", "of", "data", "official", "worst_of")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One number of a row.

    settings   of the evaluation, as words of `evaluate` would have them
    metric     which of its results; `of`: the one whose attack begins so
    data       measured on other images than the rest: a key of the protocol's folders
    official   files that are taken where they are at hand: a key of the protocol's folders
    worst_of   no evaluation of its own: images that stand in all of these columns
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    metric: str = _ROBUST
    of: str = ""
    data: str | None = None
    official: str | None = None
    worst_of: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """`threat` and `n` are defaults that the user may replace; what a column states itself is fixed."""

    name: str
    version: int
    columns: tuple[Column, ...]
    paper: str = ""
    threat: str | None = None
    n: int | None = None
    folders: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def list_protocols() -> dict[str, str]:
    """Names such as `architectures/cifar`, and what the first line of the file says of each."""
    files = sorted(FOLDER.rglob("*.yaml"))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): _first_comment(path) for path in files}


def read_protocol(name: str | Path) -> Protocol:
    """A protocol by its name, or by the path of a YAML file of the user's."""
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return _parse(path.stem, read_yaml(path))
    known = list_protocols()
    if str(name) not in known:
        hint = did_you_mean(str(name), known) or f"; known: {', '.join(known)}"
        raise UserError(f"there is no protocol '{name}'{hint}")
    return _parse(str(name), read_yaml(FOLDER / f"{name}.yaml"))


def _parse(name: str, values: dict[str, Any]) -> Protocol:
    given = values.pop("columns", None)
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"protocol '{name}' needs columns: a mapping from names to settings")
    columns = tuple(_column(name, str(title), dict(settings)) for title, settings in given.items())
    protocol: Protocol = build(Protocol, {"name": name, "version": 1, "columns": (), **values})
    _check(name, columns, protocol.folders)
    return Protocol(**{**vars(protocol), "columns": columns})


def _column(protocol: str, name: str, given: dict[str, Any]) -> Column:
    about = {key: given.pop(key) for key in _OF_COLUMN if key in given}
    column: Column = build(Column, {"name": name, "settings": given, **about}, path=f"columns.{name}")
    if bool(given) == bool(column.worst_of):
        raise UserError(f"protocol '{protocol}': column '{name}' is an evaluation (suite: …) or a worst_of others")
    if given:
        from hardtack.evaluation.settings import EvaluationConfig  # late: listing protocols needs no torch

        build(EvaluationConfig, given, path=f"columns.{name}")  # a misspelt key or suite is found before all else
    return column


def _check(name: str, columns: tuple[Column, ...], folders: Mapping[str, str]) -> None:
    names = [column.name for column in columns]
    for place, column in enumerate(columns):
        for other in column.worst_of:
            if other not in names[:place]:
                hint = did_you_mean(other, names[:place])
                raise UserError(f"protocol '{name}': no column '{other}' stands before '{column.name}'{hint}")
        for key in (column.data, column.official):
            if key is not None and key not in folders:
                raise UserError(f"protocol '{name}': '{key}' of column '{column.name}' is not among its folders")


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
