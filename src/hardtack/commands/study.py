"""`hardtack study`: a paper's table or figure, measured here beside the paper's numbers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from hardtack.base.errors import UserError
from hardtack.base.files import local_path
from hardtack.base.quick_imports import quick_imports
from hardtack.base.registry import verbs
from hardtack.commands.executor_words import DryRun, On, take_executor
from hardtack.commands.words import page, say, split_names
from hardtack.studies.study_files import find_studies

if TYPE_CHECKING:
    from hardtack.engine import Executor
    from hardtack.studies.run import StudyOutcome


@verbs.register("study", settings="hardtack.studies.request:StudyRequest")
def study_words(
    words: Annotated[list[str] | None, typer.Argument(metavar="[STUDY]... [KEY=VALUE]...")] = None,
    status: Annotated[bool, typer.Option("--status", help="show how far it is; run nothing")] = False,
    table: Annotated[
        bool, typer.Option("--table", help="write table, claims and page from what is measured; run nothing")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="write the page of all studies; run nothing")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
    on: On = None,
    dry_run: DryRun = False,
) -> None:
    """Run a paper's table or figure: [bold]hardtack study architectures/table2 scale=short seeds=3[/bold].

    Trains what is missing, measures, tests the paper's claims, and writes the table, figures and a page with the
    paper's numbers beside ours. Without a name it lists all studies and their state. scale=smoke (minutes on a CPU, the
    default), short (one GPU, planned for an hour) or paper (as published;
    [bold]hardtack plan study=NAME scale=paper[/bold] gives the cost). rows=a,b runs these rows only. Several rows at
    once: [bold]workers=4[/bold], [bold]--on ray[/bold], [bold]--on slurm[/bold]. If it is interrupted, the same command
    resumes it.

    Several studies are one job, in which what they share is trained once: [bold]hardtack study architectures/table1
    cauchy/spectra[/bold], all of a paper with [bold]hardtack study cauchy[/bold], or [bold]hardtack study
    '*/table1'[/bold].
    """
    from hardtack.base.config import parse_words

    names, settings = split_names(words)
    executor, values = take_executor(on, parse_words(settings), dry_run=dry_run)
    output = str(values.get("output", "runs/studies"))
    if table and (status or report or not names or executor is not None):
        raise UserError("--table takes studies and runs nothing: hardtack study NAME --table")
    if report:
        written = write_index(output)
        say(f"report: {written}")
    elif not names:
        _print_states(output)
        return
    elif status:
        for name in find_studies(names):
            _print_status(str(name), output, values.get("scale"))
        return
    elif table:
        written = _tabulate_all(find_studies(names), values)
    else:
        with executor or contextlib.nullcontext():
            written = _run(names, values, executor)
    if open_page:
        typer.launch(written.resolve().as_uri())


def _run(names: Sequence[str], values: dict[str, Any], executor: Executor | None) -> Path:
    from hardtack.base.runtime import Runtime

    outcomes = run_studies(names, executor=executor, **values)
    for outcome in outcomes:
        say(outcome if len(outcomes) == 1 else outcome.summary)
        for row in outcome.view["rows"]:
            if row["state"].startswith("failed"):
                say(f"row {row['name']} {row['state']}")
    written = outcomes[0].page
    if len(outcomes) == 1:
        say(f"folder: {outcomes[0].folder}\npage: {written}")
    else:
        written = outcomes[0].root / "index.html"
        if Runtime().is_main:
            written = write_index(outcomes[0].root)
        say(f"report: {written}")
    if any(outcome.failures for outcome in outcomes):
        raise typer.Exit(1)
    return written


def _tabulate_all(names: Sequence[str | Path], values: dict[str, Any]) -> Path:
    """The tables of those that have a number; the page of the last of them."""
    from hardtack.studies.run import NothingMeasured

    pages = []
    for name in names:
        try:
            pages.append(_tabulate(name, values))
        except NothingMeasured as error:
            if len(names) == 1:
                raise
            say(error)
    if not pages:
        raise UserError(f"nothing of these {len(names)} studies is measured")
    return pages[-1]


def _tabulate(name: str | Path, values: dict[str, Any]) -> Path:
    from hardtack.studies.run import tabulate

    outcome = tabulate(name, **values)
    say(f"{outcome}\nfolder: {outcome.folder}\npage: {outcome.page}")
    return outcome.page


def study(name: str | Path, /, *, quiet: bool = False, executor: Executor | None = None, **words: Any) -> StudyOutcome:
    """Run a study: `ht.study("cauchy/table1", scale="smoke")`. Settings are those of `hardtack study`."""
    with quick_imports():
        from hardtack.studies.run import study as run

    return run(name, quiet=quiet, executor=executor, **words)


def run_studies(
    names: str | Path | Sequence[str | Path], /, *, quiet: bool = False, executor: Executor | None = None, **words: Any
) -> list[StudyOutcome]:
    """Run several studies as one job: `ht.run_studies("cauchy", scale="smoke")`. What they share is trained once.

    Names are those of `hardtack study`: studies, the folder of a paper, patterns, files.
    """
    with quick_imports():
        from hardtack.studies.run import run_studies as run

    return run(names, quiet=quiet, executor=executor, **words)


def write_index(output: str | Path) -> Path:
    """The page of all studies: `index.html` in their folder."""
    from hardtack.report.study_index import IndexEntry, write_study_index
    from hardtack.studies.state import states

    root = local_path(output)
    entries: list[IndexEntry] = []
    for state in states(root):
        done, there = state.rows
        view = state.view
        at = None if state.folder is None else state.folder / "page.html"
        entries.append({
            "name": state.study.name, "title": state.study.title, "paper": state.study.paper,
            "group": state.study.source, "kind": state.study.kind, "supplement": state.study.supplement,
            "state": state.progress, "scale": view["scale"] if view else "", "seeds": view["seeds"] if view else 0,
            "rows_done": done, "rows_all": there, "counts": state.counts, "seconds": view["seconds"] if view else 0.0,
            "page": os.path.relpath(at, root) if at is not None and at.is_file() else None,
        })  # fmt: skip
    return write_study_index(entries, root / "index.html")


def _print_states(output: str) -> None:
    from hardtack.studies.state import states

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("study", "scale", "state", "about"):
        table.add_column(title, no_wrap=title != "about")
    for state in states(output):
        scale = state.view["scale"] if state.view else ""
        table.add_row(state.study.name, scale, state.words, escape(state.study.title))
    page().print(table, highlight=False)


def _print_status(name: str, output: str, scale: str | None) -> None:
    from hardtack.studies.state import state_of
    from hardtack.studies.text import study_text

    state = state_of(name, output, scale)
    if state.view is None:
        say(f"{name}: {state.words}")
        return
    say(study_text(state.view))
    say(f"{name} at scale {state.view['scale']}: {state.words}")
