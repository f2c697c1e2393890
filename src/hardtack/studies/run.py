"""`hardtack study NAME` and `ht.study(NAME)`: train what is missing, measure, test the claims, write table and page."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hardtack
from hardtack.base.config import build
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import write_text
from hardtack.base.lock import is_held
from hardtack.base.printable import printable
from hardtack.report.study_view import NOT_RUN_YET, StudyView
from hardtack.results import read_results
from hardtack.studies.cell_store import read_cell
from hardtack.studies.cells import Cells, Measured
from hardtack.studies.check import check_study
from hardtack.studies.job import StudiesJob, StudyStore
from hardtack.studies.measure import id_of
from hardtack.studies.measuring import Measuring
from hardtack.studies.needs import check_data, check_paths
from hardtack.studies.part import StudyPart
from hardtack.studies.request import StudyRequest, check_rows, read_request
from hardtack.studies.scaled import ScaledStudy, at_scale
from hardtack.studies.state import RECORD, StudyState, read_record
from hardtack.studies.study import SCALES, Study, load_study, section_of
from hardtack.studies.study_files import find_studies
from hardtack.studies.unit import MODELS, Unit, units_of
from hardtack.studies.view import Failures, study_view

if TYPE_CHECKING:
    from hardtack.base.runtime import Runtime
    from hardtack.engine import Executor

NOTE_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """What a study came to: `view` has every number, claim and state, `cells` the values per image.

    `root` is the folder of all studies, `folder` that of this one at this scale.
    """

    study: Study
    view: StudyView
    cells: Cells
    failures: Failures
    root: Path
    folder: Path

    @property
    def page(self) -> Path:
        return self.folder / "page.html"

    @property
    def summary(self) -> str:
        """One line: rows that are measured, and verdicts."""
        state = StudyState(study=self.study, view=self.view)
        return f"{self.study.name}: {'{} of {} rows'.format(*state.rows)}, {state.verdicts}"

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each claim, by its test."""
        return {claim["test"]: claim["verdict"] for claim in self.view["claims"]}

    def value(self, row: str, column: str) -> float:
        """The mean over seeds of one cell, in the table's units."""
        rows = {item["name"]: item["cells"] for item in self.view["rows"]}
        if row not in rows:
            raise UserError(f"there is no row '{row}'{did_you_mean(row, rows)}")
        if column not in rows[row]:
            raise UserError(f"there is no column '{column}'{did_you_mean(column, rows[row])}")
        value = rows[row][column]["value"]
        if value is None:
            raise UserError(f"{column}({row}) was not measured")
        return value

    def __str__(self) -> str:
        from hardtack.studies.text import study_text

        return study_text(self.view)


def study(name: str | Path, /, *, quiet: bool = False, executor: Executor | None = None, **words: Any) -> StudyOutcome:
    """Run a study: `study("cauchy/table1", scale="smoke", seeds=3)`. Repeated, it does only what is missing.

    `executor`: where runs are trained and measured (default: in this process, or by all processes of
    torchrun together).
    """
    found = find_studies([name])
    if len(found) > 1:
        raise UserError(f"'{name}' is {len(found)} studies: ht.run_studies(['{name}']) runs them as one job")
    return run_studies(found, quiet=quiet, executor=executor, **words)[0]


def run_studies(
    names: str | Path | Sequence[str | Path], /, *, quiet: bool = False, executor: Executor | None = None, **words: Any
) -> list[StudyOutcome]:
    """Run several studies as one job: `run_studies("cauchy", scale="smoke")`, all of a paper.

    What they share is trained once. Every study is checked before anything is trained.
    """
    from hardtack.engine import run_job
    from hardtack.engine.executors.together import Together

    found = find_studies([names] if isinstance(names, str | Path) else names)
    if not found:
        raise UserError("name a study: ht.run_studies(['cauchy/table1'])")
    check_rows(found, words)
    prepared = [_prepare(name, words, quiet=quiet) for name in found]
    _check_folders(found, prepared)
    parts, runners, chosen_units = [], [], []
    for each in prepared:
        wanted = at_scale(each.scaled.study, each.request.scale, rows=each.request.rows)
        chosen = [unit for unit in each.measuring.units if unit.row in wanted.rows]
        check_study(wanted, chosen)
        check_paths(each.request)
        chosen_units.append((each.request, chosen))
        runner = _Runner(each)
        runners.append(runner)
        parts.append(StudyPart(each.scaled, chosen, each.measuring, begun=runner.note_start, after=runner.note))
    check_data(chosen_units)
    store = StudyStore([each.request.folder for each in prepared], [unit for part in parts for unit in part.units])
    where = executor or Together(prepared[0].runtime)
    job = StudiesJob(parts)
    for runner, part in zip(runners, parts, strict=True):
        runner.share = functools.partial(job.share, part)
    results = run_job(job, store=store, executor=where, quiet=quiet or executor is None)
    return [runner.outcome(*result) for runner, result in zip(runners, results, strict=True)]


def _check_folders(names: Sequence[str | Path], prepared: Sequence[_Prepared]) -> None:
    """Refuse two files that would write their tables to the same folder."""
    taken: dict[Path, str | Path] = {}
    for name, each in zip(names, prepared, strict=True):
        if (other := taken.setdefault(each.request.folder, name)) is not name:
            raise UserError(f"{other} and {name} would both write to {each.request.folder}: rename one of the files")


def tabulate(
    name: str | Path, /, *, write: bool = True, versions: Sequence[str] = (hardtack.__version__,), **words: Any
) -> StudyOutcome:
    """Table, claims and page of a study from what is measured so far; nothing is trained or measured.

    Scale and seeds are those of the last record, unless `words` say others. `write=False`: the outcome alone, no files.
    `versions`: those whose cells count.
    """
    request = read_request(load_study(name).name, words)
    if request.rows:
        raise UserError("rows chooses what is run; the table has all rows")
    if "scale" not in words:
        words["scale"] = next((scale for scale in reversed(SCALES) if _has_record(request, scale)), request.scale)
        request = dataclasses.replace(request, scale=words["scale"])
    last = read_record(request.folder)
    if "seeds" not in words and last is not None:
        words["seeds"] = last["seeds"]
    if write and is_held(request.folder / ".lock"):
        raise UserError(f"{request.name} is running in {request.folder}: --status shows how far it is")
    prepared = _prepare(name, words, quiet=True)
    runner = _Runner(prepared, computes=False)
    runner.known = stored_cells(prepared.scaled, prepared.measuring.units, prepared.measuring, versions)
    if not runner.known:
        raise NothingMeasured(f"nothing of {request.name} is measured at scale {request.scale} in {request.root}")
    return runner.outcome({}, {}, write=write)


class NothingMeasured(UserError):
    """A table was asked for that has no number yet."""


def _has_record(request: StudyRequest, scale: str) -> bool:
    return read_record(dataclasses.replace(request, scale=scale).folder) is not None


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """What the words of a study come to."""

    request: StudyRequest
    scaled: ScaledStudy
    measuring: Measuring
    runtime: Runtime


def _prepare(name: str | Path, words: Mapping[str, Any], *, quiet: bool) -> _Prepared:
    from hardtack.base.runtime import Runtime

    loaded = load_study(name)
    request = read_request(loaded.name, words)
    scaled = at_scale(loaded, request.scale)
    chosen_runtime = section_of(request.settings, "runtime")
    runtime: Runtime = build(Runtime, chosen_runtime)
    measuring = Measuring(
        root=request.root, units=units_of(scaled, seeds=request.seeds, words=request.settings),
        n=request.n if request.n is not None else scaled.scale.n,
        data_root=section_of(request.settings, "data").get("root"), folders=request.folders, frost=request.frost,
        runtime={key: value for key, value in chosen_runtime.items() if key == "device"},
        quiet=quiet, is_main=runtime.is_main, tell=_tell if not quiet and runtime.is_main else _silent,
    )  # fmt: skip
    return _Prepared(request=request, scaled=scaled, measuring=measuring, runtime=runtime)


class _Runner:
    """Writes what a study has come to: a record now and then, everything else at the end.

    `computes`: whether anything is trained or measured; if not, device and seconds are those of the last record.
    """

    def __init__(self, prepared: _Prepared, *, computes: bool = True) -> None:
        from hardtack.base.cost import device_name

        self.last = read_record(prepared.request.folder)
        self.scaled, self.measuring, self.request = prepared.scaled, prepared.measuring, prepared.request
        self.units: Sequence[Unit] = prepared.measuring.units
        self.is_main, self.computes = prepared.runtime.is_main, computes
        self.device = device_name(prepared.runtime) if computes else ""
        self.began = self.noted = time.monotonic()
        self.before = float(self.last["seconds"]) if self.last is not None else 0.0
        self.share: Callable[[], float] = lambda: 1.0  # of the time of a job of several studies
        self.known: dict[tuple[str, str], Any] = {}  # the cells of earlier calls

    def note_start(self) -> None:
        """Read what was measured before, and say that the study has begun."""
        self.known = stored_cells(self.scaled, self.units, self.measuring)
        self._note({}, {})

    def note(self, cells: Cells, failures: Failures) -> None:
        """The record of what is known so far, for `hardtack study` in another window; it takes time, so not always."""
        if time.monotonic() - self.noted > NOTE_EVERY_S:
            self._note(cells, failures)

    def _note(self, cells: Cells, failures: Failures) -> None:
        if self.is_main:
            _write_record(self.request.folder, self._view({**self.known, **cells}, failures))
        self.noted = time.monotonic()

    def outcome(self, cells: Cells, failures: Failures, *, write: bool = True) -> StudyOutcome:
        cells = {**self.known, **cells}
        view = self._view(cells, failures)
        if self.is_main and write:
            _write_record(self.request.folder, view)
            write_outputs(view, self.request.folder)
        return StudyOutcome(
            study=self.scaled.study, view=view, cells=cells, failures=failures, root=self.request.root,
            folder=self.request.folder,
        )  # fmt: skip

    def _view(self, cells: Cells, failures: Failures) -> StudyView:
        request, device = self.request, self.device
        seconds = self.before + self.share() * (time.monotonic() - self.began)
        if not self.computes:
            seeds = 1 + max(cell.seed for measured in cells.values() for cell in measured)
            request, seconds = dataclasses.replace(request, seeds=seeds), self.before
            device = self.last["device"] if self.last is not None else _devices(cells, request.root / MODELS)
        view = study_view(
            self.scaled, cells, failures, units=self.units, root=request.root, page_folder=request.folder,
            seeds=request.seeds, changes=request.changes, command=request.command, device=device,
            seconds=round(seconds, 1),
        )  # fmt: skip
        return view if self.computes else _with_failures_of(self.last, view)


def _devices(cells: Cells, runs: Path) -> str:
    """Where the results of these cells were measured."""
    folders = sorted({cell.run for measured in cells.values() for cell in measured})
    return ", ".join(sorted({result.device for run in folders for result in read_results(runs / run)} - {""}))


def _with_failures_of(last: StudyView | None, view: StudyView) -> StudyView:
    """Rows that failed when they were last run say so still, as long as they are not measured."""
    states = {row["name"]: row["state"] for row in last["rows"]} if last is not None else {}
    for row in view["rows"]:
        if row["state"] == NOT_RUN_YET and states.get(row["name"], "").startswith("failed"):
            row["state"] = states[row["name"]]
    return view


def stored_cells(
    scaled: ScaledStudy, units: Sequence[Unit], measuring: Measuring, versions: Sequence[str] = (hardtack.__version__,)
) -> dict[tuple[str, str], Any]:
    """The cells of these units that were measured before, by one of these versions."""
    cells: dict[tuple[str, str], list[Measured]] = {}
    for unit in units:
        columns = scaled.columns_of(unit.training)
        for column in columns:
            ids = [id_of(unit, column, columns, measuring, version) for version in versions]
            stored = (read_cell(measuring.root, id, measuring.root / MODELS) for id in ids)
            if (cell := next((cell for cell in stored if cell is not None), None)) is not None:
                cells.setdefault((unit.row, column.name), []).append(dataclasses.replace(cell, seed=unit.seed))
    return {key: tuple(measured) for key, measured in cells.items()}


def write_outputs(view: StudyView, folder: Path) -> None:
    """Tables, page and figures of a study in its folder."""
    from hardtack.report.study_figures import write_study_figures
    from hardtack.report.study_page import write_study_page
    from hardtack.report.study_tables import csv_table, latex_table, markdown_table

    write_text(folder / "table.md", markdown_table(view))
    write_text(folder / "table.tex", latex_table(view))
    write_text(folder / "table.csv", csv_table(view))
    runs = [folder / run for row in view["rows"] for run in row["runs"]]
    write_study_page(view, runs, folder / "page.html")
    write_study_figures(view, runs, folder / "figures")


def _write_record(folder: Path, view: StudyView) -> None:
    write_text(folder / RECORD, json.dumps(view, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _silent(line: str) -> None:
    """For quiet calls, and for all processes but the first."""
