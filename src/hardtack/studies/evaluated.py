"""Columns that are evaluations: those of a run with as many images are measured together, as one protocol."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hardtack.base.config import merge
from hardtack.base.errors import UserError
from hardtack.evaluation.settings import suite_class
from hardtack.results import Result
from hardtack.studies.cells import Measured
from hardtack.studies.column import StudyColumn
from hardtack.studies.measuring import Failure, Measuring, from_result, guarded, in_units
from hardtack.studies.protocol import Column, Protocol, read_protocol
from hardtack.studies.protocol_run import MissingColumn, ProtocolJob
from hardtack.studies.unit import Unit, resolve_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A column of a study as a protocol would state it, the folders it may use, and how many images it asks for."""

    column: StudyColumn
    stated: Column
    folders: Mapping[str, str]
    n: int | None


def evaluated_columns(
    unit: Unit, folder: Path, columns: Sequence[StudyColumn], wanted: Sequence[StudyColumn], measuring: Measuring
) -> Iterator[tuple[str, Measured | Failure]]:
    """The wanted columns that are evaluations; `columns` are all of the unit: a worst case needs its parts."""
    names = {column.name for column in wanted if column.kind not in ("analysis", "fact")}
    needed = names | {part for column in wanted for part in column.worst_of}
    stated = {column.name: stated_column(column) for column in columns if column.name in needed}
    groups: dict[int | None, list[Evaluated]] = {}
    for own in stated.values():
        parts = [stated[name].n for name in own.stated.worst_of]
        groups.setdefault(measuring.images(parts[0] if parts else own.n), []).append(own)
    for n, group in groups.items():
        for column, cell in _measured_together(unit, folder, n, group, measuring):
            if column.name in names:
                yield column.name, cell if isinstance(cell, Failure) else in_units(cell, column)


def stated_column(column: StudyColumn) -> Evaluated:
    """The evaluation of a column: its own settings, or those of a protocol's column with its own over them."""
    settings = {key: value for key, value in column.settings.items() if key != "n"}
    n = column.settings.get("n")
    if column.worst_of:
        return Evaluated(column=column, stated=Column(name=column.name, worst_of=column.worst_of), folders={}, n=n)
    if column.protocol is None:
        stated = Column(
            name=column.name, settings={"suite": column.suite, **settings}, metric=column.metric or "", of=column.of,
            data=column.data, official=column.official, test_list=column.test_list,
        )  # fmt: skip
        return Evaluated(column=column, stated=stated, folders=column.folders, n=n)
    protocol, source = _protocol_column(column)
    settings = merge(source.settings, settings)
    if protocol.threat is not None and suite_class(settings["suite"]).attacks:
        settings.setdefault("threat", protocol.threat)
    stated = dataclasses.replace(source, name=column.name, settings=settings, metric=column.metric or source.metric)
    return Evaluated(column=column, stated=stated, folders=protocol.folders, n=n or protocol.n)


def _protocol_column(column: StudyColumn) -> tuple[Protocol, Column]:
    protocol = read_protocol(str(column.protocol))
    source = next((item for item in protocol.columns if item.name == column.column), None)
    if source is None or source.worst_of:
        known = ", ".join(item.name for item in protocol.columns if not item.worst_of)
        raise UserError(f"columns.{column.name}: protocol {protocol} has no column '{column.column}'; it has {known}")
    return protocol, source


def _measured_together(
    unit: Unit, folder: Path, n: int | None, group: Sequence[Evaluated], measuring: Measuring
) -> Iterator[tuple[StudyColumn, Measured | Failure]]:
    folders = {key: path for own in group for key, path in own.folders.items()}
    group = sorted(group, key=lambda own: bool(own.stated.worst_of))  # a worst case after its parts
    columns = tuple(
        dataclasses.replace(
            own.stated, settings=resolve_rows(own.stated.settings, unit, measuring.units, measuring.root)
        )
        for own in group
    )
    protocol = Protocol(name=f"study {unit.study}", version=1, columns=columns, folders=folders)
    given = {key: path for key, path in measuring.folders.items() if key in folders}
    words = {"protocol": protocol, "n": n, "folders": given, "frost": measuring.frost, **measuring.words()}
    job = ProtocolJob(folder, {key: value for key, value in words.items() if value is not None})
    results: dict[str, Result] = {}
    vectors: dict[str, dict[int, float]] = {}

    def measure(column: Column) -> Measured:
        try:
            measured = job.worst(column, results, vectors) if column.worst_of else None
            results[column.name] = measured or job.measure(column, vectors, measuring.quiet)
        except MissingColumn as reason:
            raise UserError(str(reason)) from None
        return from_result(unit, results[column.name], vectors.get(column.name), folder)

    for own, stated in zip(group, columns, strict=True):
        yield own.column, guarded(functools.partial(measure, stated))
    job.write(results, vectors)
