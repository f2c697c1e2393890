"""`write_site`: read what changed, write its pages, then the index, then remove what is not needed any more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hardtack
from hardtack.base.digests import json_digest
from hardtack.base.file_state import file_state
from hardtack.base.limits import shorten
from hardtack.base.lock import JobLock, hold
from hardtack.base.progress import Meter
from hardtack.report.damage import with_sound_runs
from hardtack.report.page import render_page
from hardtack.report.site.assets import Assets, make_assets
from hardtack.report.site.entries import architecture_of, entries_of
from hardtack.report.site.evidence import Verified
from hardtack.report.site.folder import SiteFolder, folders_state, page_name
from hardtack.report.site.index import index_html
from hardtack.report.site.model_info import model_info_files
from hardtack.report.site.study_pages import StudyFolder, study_record
from hardtack.report.view import view
from hardtack.results import Run, find_runs
from hardtack.results.runs import read_labelled, run_labels

INDEX = "index.html"
RUNS, STUDIES = "runs", "studies"


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """What a build did. `problems` has a sentence for everything that was left out or disagrees with its evidence."""

    index: Path
    runs: int
    studies: int
    written: int
    unchanged: int
    removed: int
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = f"{self.runs} runs" if self.runs != 1 else "1 run"
        counts += f", {self.studies} {'study' if self.studies == 1 else 'studies'}" if self.studies else ""
        removed = f", {self.removed} files removed" if self.removed else ""
        written = f"{self.written} file{'' if self.written == 1 else 's'} written"
        return f"{counts}: {written}, {self.unchanged} page{'' if self.unchanged == 1 else 's'} unchanged{removed}"


def write_site(
    paths: Iterable[str | Path],
    output: str | Path,
    *,
    title: str = "Leaderboard",
    studies: Sequence[StudyFolder] = (),
    reported: Sequence[Run] = (),
    verify: Callable[[Path], Mapping[str, Verified]] | None = None,
    quiet: bool = False,
) -> SiteReport:
    """Write the site over these runs and studies to the folder `output`; a repeated build writes only what changed.

    `reported` are runs with numbers that others report. `verify` is asked for every run folder what `hardtack verify`
    says of its evaluations. A folder that cannot be shown is left out and named; it stops nothing.
    """
    root = Path(output)
    paths = list(paths)
    folders = find_runs(paths) if paths or not reported else []
    assets = make_assets()
    maker = json_digest([hardtack.__version__, file_state(Path(hardtack.__file__).parent), sorted(assets.files)])
    site = SiteFolder.open(root, maker)
    root.mkdir(parents=True, exist_ok=True)
    with hold(JobLock(root / ".site.lock", f"the site {root}")):
        site = SiteFolder.open(root, maker)  # another build may have ended meanwhile
        return _build(site, assets, folders, title, studies, reported, verify, quiet)


def _build(
    site: SiteFolder,
    assets: Assets,
    folders: Sequence[Path],
    title: str,
    studies: Sequence[StudyFolder],
    reported: Sequence[Run],
    verify: Callable[[Path], Mapping[str, Verified]] | None,
    quiet: bool,
) -> SiteReport:
    site.save()  # from now on the folder is a site, also if the process is killed
    for name, text in assets.files.items():
        site.write(name, text)
    records: list[dict[str, Any]] = []
    total = len(folders) + len(reported) + len(studies)
    with Meter("leaderboard", total=total, quiet=quiet, unit="pages") as meter:
        for folder, label in zip(folders, run_labels(list(folders)), strict=True):
            records.append(_run_record(site, assets, folder, label, verify))
            meter.advance(1)
        for run in reported:
            records.append(_record(site, assets, f"reported {run.label}", "", run, {}))
            meter.advance(1)
        told = []
        for study in studies:
            told.append(study_record(site, assets, study, folders))
            meter.advance(1)
    made = [record for record in told if record["page"]]
    shown = [record for record in records if record["page"]]
    problems = [f"{record['label']}: {text}" for record in [*records, *told] for text in record["problems"]]
    problems = list(dict.fromkeys(problems))
    site.write(INDEX, index_html(shown, made, problems, title=title, shared=assets.index))
    removed = site.finish()
    return SiteReport(
        index=site.root / INDEX, runs=len(shown), studies=len(made), written=site.written, unchanged=site.kept,
        removed=removed, problems=tuple(problems),
    )  # fmt: skip


def _run_record(
    site: SiteFolder,
    assets: Assets,
    folder: Path,
    label: str,
    verify: Callable[[Path], Mapping[str, Verified]] | None,
) -> dict[str, Any]:
    """The record of a run: that of an earlier build where nothing changed, else its page is written."""
    key = f"run {label}"
    state = folders_state([folder], label, verify is not None, weights=verify is not None)
    if (known := site.record(key, state)) is not None:
        return known
    verified = verify(folder) if verify is not None else {}
    if any(outcome.failed for outcome in verified.values()):
        state = ""  # what it lacked may be there the next time, outside of the run folder
    with warnings.catch_warnings():  # what cannot be read is in the problems of the run, which are told at the end
        warnings.simplefilter("ignore", UserWarning)
        run = read_labelled(folder, label)
        return _record(site, assets, key, state, run, verified)


def _record(
    site: SiteFolder, assets: Assets, key: str, state: str, run: Run, verified: Mapping[str, Verified]
) -> dict[str, Any]:
    """Write the page of a run, and note what the index says of it."""
    name = f"{RUNS}/{page_name(key.partition(' ')[2], key)}"  # a run and a reported model may have one label
    output = site.root / name
    kept = [run]

    def render(runs: Sequence[Run]) -> str:
        kept[:] = runs
        told = [replace(run, problems=[_without_folder(text, run) for text in run.problems]) for run in runs]
        return render_page({**view(told, output)}, shared=assets.inner)

    record: dict[str, Any] = {"state": state, "label": shorten(run.label), "page": None, "more": [], "entries": []}
    try:
        html = with_sound_runs([run], render)
        run = kept[0]
        entries, unsound = entries_of(run, verified)
        architecture, parameters = architecture_of(run)
        infos = model_info_files(run)
    except Exception as error:  # a stranger's folder may hold anything, and one folder must not cost the site
        record["problems"] = [f"left out: {type(error).__name__}: {_without_folder(str(error), run)}"]
        site.keep(key, record)
        return record
    site.write(name, html)
    for path, text in infos.items():
        site.write(path, text)
    record |= {
        "page": name,
        "more": sorted(infos),
        "entries": entries,
        "architecture": architecture,
        "parameters": parameters or next((entry["parameters"] for entry in entries if entry["parameters"]), None),
        "trained": bool(run.metrics),
        "problems": [_without_folder(problem, run) for problem in [*run.problems[:8], *unsound[:8]]],
    }
    site.keep(key, record)
    return record


def _without_folder(problem: str, run: Run) -> str:
    """The problem of a run without where it lies: a site is published, and homes of its makers are not."""
    return shorten(problem.replace(f"{run.path}/", "").replace(str(run.path), "the folder"), 300)
