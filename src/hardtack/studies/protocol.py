"""A protocol: columns in order, each an evaluation and which of its numbers is meant.

Each protocol is one YAML file. Its version is raised with every change that could change a number. Results carry the
version, and numbers of different versions are never put into one table.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardtack.base.config import build, first_comment, read_yaml
from hardtack.base.errors import UserError, did_you_mean

FOLDER = Path(__file__).resolve().parent / "protocols"
_ROBUST = "robust_accuracy"
_OF_COLUMN = ("metric", "of", "data", "official", "test_list", "worst_of")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One number of a row.

    settings   settings of the evaluation, as for `hardtack evaluate`
    metric     which of its results is the number
    of         the result whose attack name begins with this text, where a metric has several results
    data       the column has images of its own: a key of the protocol's folders
    official   official files that are used if they are present: a key of the protocol's folders
    test_list  a list of the test images that is used if it is present (data.test_list): a key of the protocol's folders
    worst_of   not an evaluation: the share of images that are correct in all of these columns
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    metric: str = _ROBUST
    of: str = ""
    data: str | None = None
    official: str | None = None
    test_list: str | None = None
    worst_of: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """`threat` and `n` are defaults that the user may change; the settings of a column are fixed."""

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
    """Names such as `architectures/cifar`, each with the comment in the first line of its file."""
    files = sorted(FOLDER.rglob("*.yaml"))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): first_comment(path) for path in files}


def read_protocol(name: str | Path) -> Protocol:
    """A protocol by its name, or by the path of the user's own YAML file."""
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return _parse(path.stem, read_yaml(path))
    path = FOLDER / f"{name}.yaml"
    if ".." in path.parts or not path.is_file():
        known = list_protocols()
        hint = did_you_mean(str(name), known) or f"; known: {', '.join(known)}"
        raise UserError(f"there is no protocol '{name}'{hint}")
    return _read(str(name), path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(name: str, path: Path, changed_ns: int) -> Protocol:
    """A study asks for its protocol once for every cell."""
    return _parse(name, read_yaml(path))


def _parse(name: str, values: dict[str, Any]) -> Protocol:
    listed = values.pop("columns", None)
    if not isinstance(listed, Mapping) or not listed:
        raise UserError(f"protocol '{name}' has no columns; it needs `columns:`, a mapping from names to settings")
    columns = tuple(_column(name, str(title), dict(settings)) for title, settings in listed.items())
    protocol: Protocol = build(Protocol, {"name": name, "version": 1, "columns": (), **values})
    _check(name, columns, protocol.folders)
    return Protocol(**{**vars(protocol), "columns": columns})


def _column(protocol: str, name: str, settings: dict[str, Any]) -> Column:
    about = {key: settings.pop(key) for key in _OF_COLUMN if key in settings}
    column: Column = build(Column, {"name": name, "settings": settings, **about}, path=f"columns.{name}")
    if bool(settings) == bool(column.worst_of):
        raise UserError(
            f"protocol '{protocol}': column '{name}' needs the settings of an evaluation (suite: …), or worst_of"
        )
    if settings:
        from hardtack.evaluation.settings import EvaluationConfig  # late: listing protocols needs no torch

        build(EvaluationConfig, settings, path=f"columns.{name}")  # misspelt keys and suites are reported first
    return column


def _check(name: str, columns: tuple[Column, ...], folders: Mapping[str, str]) -> None:
    names = [column.name for column in columns]
    for place, column in enumerate(columns):
        for other in column.worst_of:
            if other not in names[:place]:
                hint = did_you_mean(other, names[:place])
                raise UserError(
                    f"protocol '{name}': worst_of of '{column.name}' names '{other}', no column before it{hint}"
                )
        for key in (column.data, column.official, column.test_list):
            if key is not None and key not in folders:
                raise UserError(
                    f"protocol '{name}': column '{column.name}' names '{key}', which is not listed under `folders:`"
                )
