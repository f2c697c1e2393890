"""The pages of studies on a site, and what the index says of each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.limits import shorten
from hardtack.report.damage import with_sound_runs
from hardtack.report.page import Shared
from hardtack.report.site.assets import Assets
from hardtack.report.site.folder import SiteFolder, folders_state, page_name
from hardtack.report.study_index import SMOKE
from hardtack.report.study_page import count_badges, study_html
from hardtack.report.study_runs import study_runs
from hardtack.report.study_view import StudyView, rows_done, rows_trained, verdict_counts


@dataclass(frozen=True, kw_only=True)
class StudyFolder:
    """A study at one scale: the folder of its record, and the record; None where it is damaged."""

    folder: Path
    view: StudyView | None


def study_record(site: SiteFolder, assets: Assets, study: StudyFolder, runs: Sequence[Path]) -> dict[str, Any]:
    """Write the page of a study where it changed. Of the runs that its record names, only those in `runs` are read."""
    if study.view is None:
        label = "/".join(study.folder.resolve().parts[-2:])  # a site is published, and homes of its makers are not
        return {"label": label, "page": None, "problems": ["study.json is damaged and was left out"]}
    known = {run.resolve() for run in runs}
    named = [study.folder / run for row in study.view["rows"] for run in row["runs"]]
    own = [run for run in dict.fromkeys(named) if run.resolve() in known]
    key = f"study {study.folder}"
    state = folders_state([study.folder / "study.json", *own], str(study.folder))
    if (record := site.record(key, state)) is not None:
        return record
    title = f"{study.view['name']}-{study.view['scale']}"
    name = f"studies/{page_name(title, key)}"
    record = {"state": state, "label": shorten(study.view["name"]), "page": None, "problems": []}
    try:
        html = _html(study.view, own, study.folder, site.root / name, assets.inner)
    except Exception as error:  # a stranger's record may hold anything
        text = str(error).replace(str(study.folder), "the folder")
        record["problems"] = [f"left out: {type(error).__name__}: {shorten(text, 300)}"]
        site.keep(key, record)
        return record
    site.write(name, html)
    record |= {"page": name, **_told(study.view)}
    site.keep(key, record)
    return record


def _html(view: StudyView, own: Sequence[Path], folder: Path, output: Path, shared: Shared) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        runs = study_runs(view, own, folder)
        return with_sound_runs(runs, lambda kept: study_html(view, kept, output, shared=shared))


def _told(view: StudyView) -> dict[str, Any]:
    """One line of the index. The verdicts of scale smoke say nothing about the paper: they are grey."""
    badges = count_badges(verdict_counts(view))
    return {
        "title": shorten(view["title"], 200),
        "scale": shorten(view["scale"], 40),
        "rows": f"{rows_done(view)} of {rows_trained(view)} rows",
        "badges": [{**badge, "colour": "grey"} if view["scale"] == SMOKE else badge for badge in badges],
    }
