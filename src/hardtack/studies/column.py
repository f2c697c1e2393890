"""A column of a study: how it is printed, and the evaluation, analysis or fact that it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hardtack.base.config import build, merge
from hardtack.base.errors import UserError

# what a column is: exactly one of these keys
KINDS = ("protocol", "suite", "analysis", "worst_of", "fact")
NETWORK_FACTS = ("parameters", "million_parameters", "billion_multiply_adds")
FACTS = (*NETWORK_FACTS, "epochs", "steps", "train_seconds", "seconds_per_step", "best_epoch", "mask_variety")
Reduction = Literal["mean", "std", "first", "last", "middle", "min", "max", "deviation", "spread"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
_SHOWN = ("title", "training", "unit", "digits", "ours", "lower", "exact")
_EVALUATED = ("metric", "of", "column", "data", "official", "test_list", "folders")
# an analysis may have a setting `of` of its own
_ANALYSED = ("metric", "column", "array", "reduce", "test_list", "folders")


@dataclass(frozen=True, kw_only=True)
class StudyColumn:
    """One column. `settings` are those of the evaluation or analysis; `unit` is None until the metric decides it."""

    name: str
    title: str = ""
    training: str | None = None
    unit: Literal["percent", "fraction", "number"] | None = None
    digits: int | None = None
    ours: bool = False
    lower: bool = False
    exact: bool = False  # follows from the settings alone, as multiply-adds do: claims about it need no test
    protocol: str | None = None
    suite: str | None = None
    analysis: str | None = None
    worst_of: tuple[str, ...] = ()
    fact: str | None = None
    metric: str | None = None
    of: str = ""
    column: str = ""
    array: str | None = None
    reduce: Reduction = "mean"
    data: str | None = None
    official: str | None = None
    test_list: str | None = None  # a key of `folders`
    folders: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def has_no_error(self) -> bool:
        """Whether the number follows from the settings alone."""
        return self.exact or self.fact in NETWORK_FACTS

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind))


def read_column(name: str, values: Any, trainings: Sequence[str]) -> StudyColumn:
    """A column from its settings; whatever is no key of a column is a setting of the evaluation or analysis."""
    path = f"columns.{name}"
    if not isinstance(values, Mapping):
        raise UserError(
            f"{path}: expected a mapping such as {{suite: clean, metric: clean_accuracy}}, found {values!r}"
        )
    kinds = [kind for kind in KINDS if values.get(kind)]
    if len(kinds) != 1:
        raise UserError(f"{path}: needs exactly one of {', '.join(KINDS)}, found {', '.join(kinds) or 'none'}")
    own = {key: value for key, value in values.items() if key in _keys(kinds[0])}
    settings = {str(key): value for key, value in values.items() if key not in own}
    own = {"title": name.replace("_", " "), "training": trainings[-1], **own}
    column: StudyColumn = build(StudyColumn, {**own, "name": name, "settings": settings}, path=path)
    _check(column, path)
    return column


def _keys(kind: str) -> tuple[str, ...]:
    """The keys of a column of this kind; every other key is a setting."""
    return (*_SHOWN, *KINDS, *(_ANALYSED if kind == "analysis" else _EVALUATED))


def _check(column: StudyColumn, path: str) -> None:
    if column.kind == "protocol" and not column.column:
        raise UserError(f"{path}: name the column of protocol {column.protocol}: column: NAME")
    if column.kind == "suite" and not column.metric:
        raise UserError(f"{path}: name the metric of suite {column.suite}, such as metric: robust_accuracy")
    if column.kind == "analysis" and not (column.metric or column.array):
        raise UserError(f"{path}: name a metric or an array of the analysis {column.analysis}")
    if column.kind != "protocol" and column.test_list is not None and column.test_list not in column.folders:
        raise UserError(f"{path}: test_list names '{column.test_list}', which is not listed under `folders:`")
    if column.kind == "fact" and column.fact not in FACTS:
        raise UserError(f"{path}: there is no fact '{column.fact}'; facts: {', '.join(FACTS)}")
    if column.kind in ("worst_of", "fact") and column.settings:
        raise UserError(f"{path}: a column of kind {column.kind} has no settings, found {', '.join(column.settings)}")


def changed_column(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a column with those of a scale over them; another kind replaces how it is measured."""
    if any(kind in over for kind in KINDS):
        return {**{key: value for key, value in values.items() if key in _SHOWN}, **over}
    return merge(values, over)


def column_values(column: StudyColumn) -> dict[str, Any]:
    """The column as it would be written in a file."""
    default = StudyColumn(name="")
    keys = _keys(column.kind)
    stated = {key: getattr(column, key) for key in keys if getattr(column, key) != getattr(default, key)}
    return {**stated, **column.settings}
