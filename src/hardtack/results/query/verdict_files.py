"""The tables `verdicts` and `views`: the verdict files of all runs, read in place and only as far as a query needs.

Files with the same columns are one Arrow dataset, whose parts carry the name of their run and the id of their
evaluation: a query for one run or one evaluation opens no other file. Two views in SQL make long tables of them:

    verdicts   a row for each image and threat
    views      a row for each image and each further value: correct@fog/1, confidence@occlude, value@sigma_max/block

A file of a stranger may hold anything: one whose columns are not plain numbers and texts, or that unpacks to far more
than its size, is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq

from hardtack.base.arrays import read_columns
from hardtack.base.errors import UserError
from hardtack.base.limits import CELLS, COLUMNS, ROWS, check_unpacked, shorten
from hardtack.results.evidence import is_id
from hardtack.results.query.columns import BOOL, NUMBER, TEXT, WHOLE, Column
from hardtack.results.query.folders import Folder
from hardtack.results.store import verdicts_path

ROBUST = "robust@"
RUN, EVALUATION = "_run", "_evaluation"
VERDICTS = [
    Column("run", TEXT, "the run"),
    Column("evaluation", TEXT, "the id of the evaluation"),
    Column("threat", TEXT, "the threat; NULL where nothing was attacked"),
    Column("image", WHOLE, "the index of the image in its data set"),
    Column("label", WHOLE, "its class"),
    Column("clean_prediction", WHOLE, "the prediction for the unchanged image"),
    Column("clean_correct", BOOL, "whether it is right"),
    Column("clean_confidence", NUMBER, "the probability of the true class, unchanged image"),
    Column("robust", BOOL, "whether it stays right under the attack at this threat"),
    Column("broken_by", TEXT, "the attack that broke it (of several threats, the first that did)"),
    Column("broken_at_step", WHOLE, "the step of that attack"),
    Column("size", NUMBER, "the size of the perturbation, in the norm of its threat"),
    Column("adversarial_prediction", WHOLE, "the prediction for the adversarial image"),
    Column("attacked", BOOL, "whether it was attacked: images that are wrong anyway are not"),
    Column("forwards", WHOLE, "forward passes spent on it"),
    Column("backwards", WHOLE, "backward passes spent on it"),
]
VIEWS = [
    Column("run", TEXT, "the run"),
    Column("evaluation", TEXT, "the id of the evaluation or analysis"),
    Column("image", WHOLE, "the index of the image in its data set"),
    Column("label", WHOLE, "its class, where it is stored"),
    Column("quantity", TEXT, "correct, confidence, certainty, right, flips or value"),
    Column("view", TEXT, "what the model was shown, or what was computed: fog/1, occlude/0"),
    Column("value", NUMBER, "1 or 0 for right and wrong, else the number"),
]
_KEYS = ("run", "evaluation", "threat")


@dataclass(frozen=True)
class VerdictFile:
    """A verdict file that can be read. `threat` is that of its results where no column is named after one."""

    folder: Folder
    evaluation: str
    path: Path
    schema: pa.Schema
    threat: str | None


@dataclass
class VerdictGroup:
    """Files with the same columns: `name` is that of their dataset in SQL."""

    name: str
    files: list[VerdictFile] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return self.files[0].schema

    def dataset(self) -> pa.dataset.Dataset:
        format, local = pa.dataset.ParquetFileFormat(), pa.fs.LocalFileSystem()
        parts = [
            format.make_fragment(
                str(file.path),
                local,
                partition_expression=(pa.dataset.field(RUN) == file.folder.label)
                & (pa.dataset.field(EVALUATION) == file.evaluation),
            )
            for file in self.files
        ]
        schema = self.schema.append(pa.field(RUN, TEXT)).append(pa.field(EVALUATION, TEXT))
        return pa.dataset.FileSystemDataset(parts, schema, format, local)


def verdict_groups(folders: Sequence[Folder], *, check_all: bool = False) -> list[VerdictGroup]:
    """The verdict files that results name; with `check_all` every file is read whole, and a damaged one is left out."""
    groups: dict[tuple[str, str | None], VerdictGroup] = {}
    for folder in folders:
        for evaluation, results in folder.groups.items():
            if not is_id(evaluation) or not any(result.verdicts for result in results):
                continue
            path = verdicts_path(folder.path, evaluation)
            if not path.is_file():
                continue  # `evidence` says so
            try:
                schema = _checked_schema(path)
                if check_all:
                    read_columns(path)
            except UserError as error:
                problem = str(error)
                folder.problems += [problem] if problem not in folder.problems else []
                continue
            threats = {result.threat for result in results if result.threat}
            threat = (
                None if any(name.startswith(ROBUST) for name in schema.names) or len(threats) != 1 else threats.pop()
            )
            group = groups.setdefault((str(schema), threat), VerdictGroup(f"_verdict_files_{len(groups)}"))
            group.files.append(VerdictFile(folder, evaluation, path, schema, threat))
    return list(groups.values())


def _checked_schema(path: Path) -> pa.Schema:
    """The columns of a parquet file, from its footer alone."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:  # Arrow cannot open the file by such a name
        raise UserError(f"{path}: its name is no UTF-8 text; rename the folder") from None
    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema().remove_metadata()
    except (OSError, pa.ArrowException, MemoryError) as error:
        raise UserError(f"{path} is not a readable parquet file ({shorten(error)})") from None
    for item in schema:
        plain = pa.types.is_integer(item.type) or pa.types.is_floating(item.type) or item.type in (BOOL, TEXT)
        if not (plain or pa.types.is_null(item.type)) or not item.name.isprintable() or item.name in (RUN, EVALUATION):
            raise UserError(f"{path}: column '{shorten(item.name)}' holds {shorten(item.type)}, not verdicts")
    if len({name.lower() for name in schema.names}) < len(schema.names) or "index" not in schema.names:
        raise UserError(f"{path} has no column 'index', or two columns of one name")
    rows, count = metadata.num_rows, len(schema.names)
    if rows > ROWS or count > COLUMNS or rows * count > CELLS:
        raise UserError(f"{path} has {rows} rows × {count} columns, and the limit is {ROWS} × {COLUMNS}")
    check_unpacked(path, sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups)))
    return schema


# ---------------------------------------------------------------- SQL


def verdicts_sql(groups: Sequence[VerdictGroup]) -> str:
    """SELECT … for the table `verdicts`."""
    parts = [part for group in groups for part in _verdict_parts(group)]
    return "\nUNION ALL ".join(parts or [_empty(VERDICTS)])


def _verdict_parts(group: VerdictGroup) -> Iterator[str]:
    names = set(group.schema.names)
    threats = [name for name in group.schema.names if name.startswith(ROBUST)]
    if not threats and "clean_correct" not in names and "robust" not in names:
        return  # values of an analysis or of a protocol
    for robust in threats or ["robust"]:
        threat = robust.removeprefix(ROBUST) if threats else group.files[0].threat
        sources = {column.name: column.name for column in VERDICTS} | {
            "image": "index", "robust": robust if threat is not None else "",
        }  # fmt: skip
        cells = [_cell(column, sources[column.name], names) for column in VERDICTS if column.name not in _KEYS]
        keys = [f"{_name(RUN)} AS run", f"{_name(EVALUATION)} AS evaluation", f"{_text(threat)}::VARCHAR AS threat"]
        yield f"SELECT {', '.join([*keys, *cells])} FROM {group.name}"


def views_sql(groups: Sequence[VerdictGroup]) -> str:
    """SELECT … for the table `views`."""
    parts = [part for group in groups for part in _view_parts(group)]
    return "\nUNION ALL ".join(parts or [_empty(VIEWS)])


def _view_parts(group: VerdictGroup) -> Iterator[str]:
    names = set(group.schema.names)
    label = _cell(VIEWS[3], "label", names)
    for item in group.schema:
        quantity, at, view = item.name.partition("@")
        if not at or item.name.startswith(ROBUST) or item.type == TEXT:
            continue
        value = _cell(VIEWS[-1], item.name, names)
        keys = f"{_name(RUN)} AS run, {_name(EVALUATION)} AS evaluation, {_cell(VIEWS[2], 'index', names)}, {label}"
        yield f"SELECT {keys}, {_text(quantity)} AS quantity, {_text(view)} AS view, {value} FROM {group.name}"


def _cell(column: Column, source: str, present: set[str]) -> str:
    """A column of a file as a column of the table; NULL where the file does not have it, or holds another type."""
    value = f"TRY_CAST({_name(source) if source in present else 'NULL'} AS {column.sql_type})"
    if column.type == NUMBER:
        value = f"nullif({value}, 'NaN'::DOUBLE)"
    if column.name == "broken_at_step":  # -1 is stored for images that were not broken
        value = f"nullif({value}, -1)"
    return f"{value} AS {_name(column.name)}"


def _empty(columns: Sequence[Column]) -> str:
    cells = ", ".join(f"NULL::{column.sql_type} AS {_name(column.name)}" for column in columns)
    return f"SELECT {cells} WHERE false"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _text(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
