"""A study: a table or figure of a paper as one YAML file (docs/studies.md describes the format).

`read_study` reads and checks a file without torch: its shape, the names that rows, columns, claims and scales refer to,
and that every cell of the paper is a number or null. `hardtack.studies.check` also builds what the file names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hardtack.base.config import build, first_comment, merge, read_one_yaml
from hardtack.base.errors import UserError, did_you_mean
from hardtack.studies.claim_expression import Claim
from hardtack.studies.claim_parser import parse_claim
from hardtack.studies.column import StudyColumn, read_column
from hardtack.studies.study_files import list_studies, read_scale_preset, study_folder

# the sections of a recipe that a study may set; a test compares them with the recipe's own
SECTIONS = (
    "data", "augment", "model", "objective", "optimiser", "schedule", "sharpness", "penalty", "train", "validation",
    "runtime",
)  # fmt: skip
SCALES = ("smoke", "short", "paper")
_EMPTY = ("none", "no")  # values of a grid that add nothing to a row's name
_NAME = re.compile(r"[A-Za-z0-9_]+")
_UP_TO_YEAR = re.compile(r".*?\b\d{4}\b")

Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table. `settings` are sections of a recipe; `trainings` has those of one training only.

    `recipe` is in place of the trainings' own. A row that skips every training is only quoted from the paper.
    """

    name: str
    recipe: str | None = None
    title: str = ""
    group: str = ""
    start: str | None = None
    x: float | None = None
    skip: tuple[str, ...] = ()
    trainings: dict[str, Settings] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A way in which every row is trained: a recipe, and settings over it."""

    name: str
    recipe: str | None = None
    title: str = ""
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A chart of the cells: `y` columns against the column (or the rows' own number) `x`, which `x_title` names."""

    kind: Literal["lines", "scatter", "bars"]
    y: tuple[str, ...]
    x: str = "x"
    x_title: str = ""
    title: str = ""
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class ClaimText:
    """A sentence of the paper in our words, where it stands, and the test that decides it."""

    says: str
    test: str
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a scale changes: settings of every run, of trainings, rows and columns (None leaves one out), and `n`.

    `models` has the model that stands for another one at this scale: its name, or a name with options. `keep_settings`
    are sections or keys (`optimiser.weight_decay`) in which what the study states stands over `settings`.
    """

    name: str
    models: dict[str, str | Settings] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    keep_settings: tuple[str, ...] = ()
    trainings: dict[str, Settings | None] = field(default_factory=dict)
    rows: dict[str, Settings | None] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    columns: dict[str, Settings | None] = field(default_factory=dict)
    n: int | None = None
    seed: int | None = None
    note: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """One study file. `groups` has the rows of each group by name."""

    name: str
    title: str
    paper: str
    asks: str
    kind: Literal["table", "figure", "sweep", "text"] = "table"
    supplement: bool = False  # not one of the tables or figures of its paper, which names it or which it looks into
    protocol_note: str = ""
    trainings: dict[str, Training] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    columns: dict[str, StudyColumn] = field(default_factory=dict)
    paper_says: dict[str, dict[str, float | None]] = field(default_factory=dict)
    claims: tuple[ClaimText, ...] = ()
    plots: tuple[Plot, ...] = ()
    figures: tuple[str, ...] = ()
    scales: dict[str, Scale] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Who wrote the paper and when: what `paper` says up to the year."""
        match = _UP_TO_YEAR.match(self.paper)
        return match.group() if match is not None else self.name.split("/")[0]

    @property
    def groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for row in self.rows.values():
            if row.group:
                groups.setdefault(row.group, []).append(row.name)
        return groups

    def parsed_claims(self) -> list[Claim]:
        """The claims, with the names in them checked."""
        return [
            parse_claim(claim.test, rows=list(self.rows), columns=list(self.columns), groups=self.groups)
            for claim in self.claims
        ]


def load_study(name: str | Path) -> Study:
    """A study by its name, or by the path of the user's own YAML file."""
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return read_study(path, path.stem)
    known = list_studies()
    short = str(name).removeprefix("studies/")
    if short not in known:
        raise UserError(f"there is no study '{name}'{did_you_mean(short, known) or '; hardtack study lists all'}")
    return read_study(study_folder() / f"{short}.yaml", short)


def read_study(path: str | Path, name: str) -> Study:
    """The study in a file; any fault is a UserError that names the study and the place."""
    path = Path(path)
    values = read_one_yaml(path)
    values["title"] = values.get("title") or first_comment(path)
    try:
        return parse_study(name, values)
    except UserError as error:
        raise UserError(f"study {name}: {error}") from None


def parse_study(name: str, values: Mapping[str, Any]) -> Study:
    """A study from the values of its file."""
    values = dict(values)
    if values.get("base") and values.get("trainings"):
        raise UserError("it has both `base` and `trainings`; `base` is for rows that are trained in one way")
    trainings = {str(key): _training(str(key), item) for key, item in _mapping(values, "trainings").items()}
    trainings = trainings or {"model": _training("model", values.pop("base", None) or {})}
    rows = _rows(values.pop("grid", None), _mapping(values, "rows"), trainings)
    columns = {
        str(key): read_column(str(key), item, list(trainings)) for key, item in _mapping(values, "columns").items()
    }
    if not rows or not columns:
        raise UserError("a study needs rows (or a grid) and columns")
    scales = {str(key): _scale(str(key), item) for key, item in _mapping(values, "scales").items()}
    said = _paper_says(values.pop("paper_says", None) or {}, rows, columns)
    claims = tuple(_claim(place, item) for place, item in enumerate(values.pop("claims", None) or ()))
    plots = tuple(_plot(place, item, columns) for place, item in enumerate(values.pop("plots", None) or ()))
    study: Study = build(Study, {**values, "name": name, "figures": tuple(values.get("figures") or ())})
    study = Study(**{
        **vars(study), "trainings": trainings, "rows": rows, "columns": columns, "paper_says": said, "claims": claims,
        "plots": plots, "scales": scales,
    })  # fmt: skip
    _check(study)
    return study


# ---------------------------------------------------------------- parts of a file


def _mapping(values: dict[str, Any], key: str) -> dict[str, Any]:
    section = values.pop(key, None) or {}
    if not isinstance(section, Mapping):
        raise UserError(f"{key}: expected a mapping from names to settings, found {section!r}")
    for name in section:
        if not _NAME.fullmatch(str(name)):
            raise UserError(
                f"{key}: the name {str(name)!r} may hold only letters, digits and '_'; use `title` for more"
            )
    return dict(section)


def split_sections(values: Any, path: str, known: Sequence[str]) -> tuple[Settings, dict[str, Any]]:
    """Sections of a recipe, and everything else, whose keys must be among `known`."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path}: expected a mapping of settings, found {values!r}")
    sections = {str(key): value for key, value in values.items() if key in SECTIONS}
    rest = {str(key): value for key, value in values.items() if key not in SECTIONS}
    for key in rest:
        if key not in known:
            names = [*known, *SECTIONS]
            raise UserError(f"unknown key '{path}.{key}'{did_you_mean(key, names) or '; known: ' + ', '.join(names)}")
    return sections, rest


def section_of(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One section of settings; `model: NAME` is short for `{name: NAME}`."""
    values = settings.get(name)
    if isinstance(values, str):
        return {"name": values}
    if values is not None and not isinstance(values, Mapping):
        raise UserError(f"'{name}': expected settings such as {name}.key=value, found {values!r}")
    return dict(values or {})


def _training(name: str, values: Any) -> Training:
    path = f"trainings.{name}"
    settings, rest = split_sections(values, path, ("recipe", "title"))
    training: Training = build(Training, {**rest, "name": name, "settings": settings}, path=path)
    return training


_ROW_KEYS = ("recipe", "title", "group", "start", "x", "skip", "trainings")


def _row(name: str, values: Any, trainings: Mapping[str, Training]) -> Row:
    path = f"rows.{name}"
    settings, rest = split_sections(values or {}, path, _ROW_KEYS)
    own = rest.pop("trainings", None) or {}
    for key in [*own, *rest.get("skip", ())]:
        if key not in trainings:
            raise UserError(f"{path}: there is no training '{key}'{did_you_mean(key, trainings)}")
    for key, item in own.items():
        split_sections(item, f"{path}.trainings.{key}", ("start",))
    row: Row = build(Row, {"title": name, **rest, "name": name, "settings": settings}, path=path)
    return Row(**{**vars(row), "trainings": dict(own)})


def _rows(grid: Any, listed: Mapping[str, Any], trainings: Mapping[str, Training]) -> dict[str, Row]:
    """Rows of the grid in order, then those that are listed; a listed one of the same name adds to that of the grid."""
    values = _grid_rows(grid) if grid is not None else {}
    for name, item in listed.items():
        values[str(name)] = merge(values.get(str(name), {}), item or {})
    return {name: _row(name, item, trainings) for name, item in values.items()}


def _grid_rows(grid: Any) -> dict[str, Settings]:
    if not isinstance(grid, Mapping) or not all(isinstance(axis, Mapping) and axis for axis in grid.values()):
        raise UserError("grid: expected a mapping from axes to mappings from values to settings")
    rows: dict[str, Settings] = {}
    for combination in itertools.product(*(axis.items() for axis in grid.values())):
        names = [str(name) for name, _ in combination if str(name) not in _EMPTY]
        titles = [str((item or {}).get("title", name)) for name, item in combination if str(name) not in _EMPTY]
        values: Settings = {}
        for _, item in combination:
            values = merge(values, {key: value for key, value in (item or {}).items() if key != "title"})
        rows["_".join(names) or "none"] = {**values, "title": " + ".join(titles) or "none"}
    return rows


_SCALE_KEYS = (
    "base",
    "models",
    "settings",
    "keep_settings",
    "trainings",
    "rows",
    "keep",
    "columns",
    "n",
    "seed",
    "note",
)


def _scale(name: str, values: Any) -> Scale:
    path = f"scales.{name}"
    if name not in SCALES:
        raise UserError(f"there is no scale '{name}'; scales: {', '.join(SCALES)}")
    values = dict(values or {})
    if (preset := values.pop("base", None)) is not None:
        values = _over_preset(read_scale_preset(str(preset)), values)
    for key in values:
        if key not in _SCALE_KEYS:
            raise UserError(f"unknown key '{path}.{key}'{did_you_mean(key, _SCALE_KEYS)}")
    split_sections(values.get("settings") or {}, f"{path}.settings", ())
    kept = tuple(_listed(values.pop("keep_settings", None)))
    for key in kept:
        if (section := key.partition(".")[0]) not in SECTIONS:
            raise UserError(f"{path}.keep_settings: there is no section '{section}'{did_you_mean(section, SECTIONS)}")
    note = values.pop("note", None) or ()
    return Scale(
        name=name, note=(note,) if isinstance(note, str) else tuple(note), keep=tuple(values.pop("keep", None) or ()),
        keep_settings=kept,
        **{key: item for key, item in values.items() if item is not None},
    )  # fmt: skip


def _over_preset(preset: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    notes = [item for part in (preset, values) for item in _listed(part.get("note"))]
    return {**merge(preset, values), "note": list(dict.fromkeys(notes))}


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _claim(place: int, values: Any) -> ClaimText:
    if isinstance(values, str):
        values = {"says": values, "test": values}
    claim: ClaimText = build(ClaimText, values, path=f"claims[{place}]")
    return claim


def _plot(place: int, values: Any, columns: Mapping[str, Any]) -> Plot:
    values = dict(values)
    values["y"] = tuple(_listed(values.get("y")))
    plot: Plot = build(Plot, values, path=f"plots[{place}]")
    for name in (*plot.y, *([] if plot.x == "x" else [plot.x])):
        if name not in columns:
            raise UserError(f"plots[{place}]: there is no column '{name}'{did_you_mean(name, columns)}")
    return plot


def _paper_says(
    values: Any, rows: Mapping[str, Row], columns: Mapping[str, StudyColumn]
) -> dict[str, dict[str, float | None]]:
    """Every cell of the paper, checked: all rows and all of its columns, each a number or null."""
    wanted = [column.name for column in columns.values() if not column.ours]
    if not values and wanted:
        raise UserError("paper_says is missing; columns that the paper does not have are marked `ours: true`")
    for name in [*values, *rows]:
        if name not in rows:
            raise UserError(f"paper_says: there is no row '{name}'{did_you_mean(name, rows)}")
        if name not in values and wanted:
            raise UserError(f"paper_says: row '{name}' is missing; write null where the paper is silent")
    said = {}
    for name, cells in values.items():
        for column in [*(cells or {}), *wanted]:
            if column not in columns:
                raise UserError(f"paper_says.{name}: there is no column '{column}'{did_you_mean(column, columns)}")
            if column not in (cells or {}) and column in wanted:
                raise UserError(
                    f"paper_says.{name}: column '{column}' is missing; write null where the paper is silent"
                )
            value = (cells or {})[column]
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise UserError(f"paper_says.{name}.{column}: expected a number or null, found {value!r}")
        said[str(name)] = dict(cells or {})
    return said


# ---------------------------------------------------------------- names that refer to each other


def _check(study: Study) -> None:
    for column in study.columns.values():
        if column.training is not None and column.training not in study.trainings:
            raise UserError(
                f"columns.{column.name}: there is no training '{column.training}'"
                f"{did_you_mean(column.training, study.trainings)}"
            )
        for other in column.worst_of:
            if other not in study.columns or study.columns[other].training != column.training:
                raise UserError(f"columns.{column.name}: '{other}' is no column of the same training")
    for scale in study.scales.values():
        for kind, known in (("rows", study.rows), ("columns", study.columns), ("trainings", study.trainings)):
            for name in getattr(scale, kind):
                if name not in known:
                    raise UserError(f"scales.{scale.name}.{kind}: there is no '{name}'{did_you_mean(name, known)}")
        for name in scale.keep:
            if name not in study.rows:
                raise UserError(f"scales.{scale.name}.keep: there is no row '{name}'{did_you_mean(name, study.rows)}")
    missing = [name for name in SCALES if name not in study.scales]
    if missing:
        raise UserError(f"scales: {', '.join(missing)} is missing (paper: {{}} is as published)")
    study.parsed_claims()
