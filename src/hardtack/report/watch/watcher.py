"""The state of all jobs below some folders, as plain values: what the page and `hardtack watch --once` show.

Folders are read, never written, and nothing of theirs is run. They are looked for at every call, so that runs which
start later appear by themselves. One that cannot be read is named, and the others go on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.base.lock import JobLock
from hardtack.base.trust import file_inside
from hardtack.report import wording
from hardtack.report.study_view import rows_done, rows_trained
from hardtack.report.watch.trainings import LOCK, TrainingFolder
from hardtack.results import PROTOCOL, Result, find_metric, is_run, read_results, source_of, wilson
from hardtack.results.unfinished import HOMES, Known, UnfinishedJob, unfinished_jobs

ORDER = {"running": 0, "stopped": 1, "finished": 2}
_WITH_CURVES = 6  # jobs that do not run whose curves are sent, the newest
_MOST_FOLDERS = 5000
_DEPTH = 5  # of folders below the one that is watched: studies lie deeper than runs
_MOST_RESULTS = 3


class Watcher:
    """Follows the run folders below `paths`; `every_s`: between two looks at the disk, however many pages are open."""

    def __init__(self, paths: Sequence[Path], *, every_s: float = 1.0) -> None:
        self.every_s = every_s
        self.paths = [path.resolve() for path in paths]
        self._trainings: dict[Path, TrainingFolder] = {}
        self._locks: dict[Path, JobLock] = {}
        self._results: dict[Path, tuple[tuple[int, ...], list[str]]] = {}
        self._pieces: Known = {}
        self._guard = threading.Lock()
        self._looked, self._state = -1e9, dict[str, Any]()

    def state(self) -> dict[str, Any]:
        """All jobs, those that run first; at most so often from the disk."""
        with self._guard:
            if time.monotonic() - self._looked >= self.every_s:
                self._state = self._look()
                self._looked = time.monotonic()
            return self._state

    def _look(self) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = []
        problems: list[str] = []
        folders = list(self._folders())
        for folder in folders[:_MOST_FOLDERS]:
            try:
                jobs += self._jobs(folder)
            except (OSError, UserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                problems.append(f"{self._name(folder)}: {type(error).__name__}: {shorten(error, 200)}")
        if len(folders) > _MOST_FOLDERS:
            problems.append(f"only the first {_MOST_FOLDERS} of {len(folders)} folders are followed")
        jobs.sort(key=lambda job: (ORDER[job["state"]], -(job["changed"] or 0), job["key"]))
        shown = 0
        for job in jobs:
            if job["state"] != "running" and "curves" in job:
                shown += 1
                if shown > _WITH_CURVES:
                    job["curves"] = {}
        return {
            "watched": [str(path) for path in self.paths],
            "now": time.time(),
            "jobs": jobs,
            "problems": problems,
        }

    # ------------------------------------------------------------ folders

    def _folders(self) -> Iterator[Path]:
        seen: set[Path] = set()
        for path in self.paths:
            for folder in _job_folders(path, _DEPTH):
                if (real := folder.resolve()) not in seen:
                    seen.add(real)
                    yield folder

    def _name(self, folder: Path) -> str:
        top = next((path for path in self.paths if folder.is_relative_to(path)), folder)
        return shorten(folder.name if folder == top else folder.relative_to(top).as_posix())

    def _held(self, path: Path) -> bool:
        """The same lock is asked every time: that is how one is known whose holder on another machine is gone."""
        try:
            os.lstat(path)
        except OSError:
            self._locks.pop(path, None)
            return False
        return not path.is_symlink() and self._locks.setdefault(path, JobLock(path)).seen_held()

    # ------------------------------------------------------------ jobs

    def _jobs(self, folder: Path) -> list[dict[str, Any]]:
        name = self._name(folder)
        if (study := self._study(folder, name)) is not None:
            return [study]
        training = self._trainings.setdefault(folder, TrainingFolder(folder)).snapshot(
            running=self._held(folder / LOCK)
        )
        results = self._headlines(folder)
        jobs = []
        if training is not None:
            jobs.append({"key": str(folder), "name": name, "results": results, **training})
        for job in unfinished_jobs(folder, self._held, self._pieces):
            jobs.append({"key": f"{folder} {job.id}", "name": name, **_evaluation(job)})
        if not jobs and results:
            changed = (folder / "results.jsonl").stat().st_mtime
            about = {"kind": "evaluation", "state": "finished", "about": "", "share": 1.0, "left_s": None}
            jobs.append({"key": str(folder), "name": name, "results": results, "changed": changed, **about})
        return jobs

    def _headlines(self, folder: Path) -> list[str]:
        """The main numbers of a run in words, read again where the file changed."""
        try:
            path = file_inside(folder, "results.jsonl")
            facts = path.stat()
        except (OSError, UserError):
            return []
        sign = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if self._results.get(folder, ((), []))[0] != sign:
            try:
                results = read_results(folder)
            except UserError as error:
                self._results[folder] = (sign, [shorten(error, 200)])
            else:
                self._results[folder] = (sign, list(dict.fromkeys(map(_headline, _main(results)))))
        return self._results[folder][1]

    def _study(self, folder: Path, name: str) -> dict[str, Any] | None:
        from hardtack.report.study_record import RECORD, read_record

        if not (folder / RECORD).is_file() or (view := read_record(folder)) is None:
            return None
        done, there = rows_done(view), rows_trained(view)
        running = self._held(folder / ".lock")
        return {
            "key": str(folder),
            "name": name,
            "kind": "study",
            "state": "running" if running else "finished" if done >= there else "stopped",
            "about": shorten(view["title"], 160),
            "share": done / there if there else None,
            "left_s": None,
            "changed": (folder / RECORD).stat().st_mtime,
            "facts": [f"{done} of {there} rows measured", f"scale {shorten(view['scale'], 20)}"],
        }


def _job_folders(folder: Path, depth: int) -> Iterator[Path]:
    """Runs, and folders in which the first evaluation or a study is at work."""
    try:
        entries = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
        children = sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
        names = {entry.name for entry in children}
        if is_run(folder) or (folder / LOCK).exists() or names & set(HOMES):
            yield folder
            return
    except OSError:
        return
    if (folder / "study.json").is_file():
        yield folder
    for child in children if depth > 0 else ():
        upwards = child.is_symlink() and folder.resolve().is_relative_to(child.resolve())
        yield from () if upwards else _job_folders(child, depth - 1)


def _evaluation(job: UnfinishedJob) -> dict[str, Any]:
    """An unfinished evaluation or analysis. Images of pieces that are not finished are not among the accuracies."""
    share = min(1.0, job.rows / job.total) if job.total else None
    facts = [f"{job.pieces} {'piece' if job.pieces == 1 else 'pieces'} done"]
    if job.total:
        facts.append(f"{job.rows:,} of {job.total:,} {'images' if job.unit == 'img' else job.unit}")
    if job.under_way:
        facts.append(f"of {job.under_way:,} images under way {job.standing:,} are still correct")
    numbers = []
    for title, count in (("Clean accuracy", job.correct), ("Robust accuracy", job.robust)):
        if count is not None and 0 <= count <= job.rows and job.rows:
            low, high = wilson(count, job.rows)
            numbers.append(f"{title} so far {wording.number(count / job.rows)} ({100 * low:.1f}–{100 * high:.1f}%)")
    return {
        "kind": "evaluation",
        "state": "running" if job.running else "stopped",
        "about": shorten(job.title, 80),
        "share": share,
        "left_s": _left(job) if job.running else None,
        "changed": job.began,
        "facts": facts,
        "results": numbers,
    }


def _left(job: UnfinishedJob) -> float | None:
    """Seconds until the last row, at the speed since the process began."""
    if job.total is None or job.began is None or job.rows <= job.done:
        return None
    passed = time.time() - job.began
    return (job.total - job.rows) * passed / (job.rows - job.done) if passed > 0 else None


def _main(results: Sequence[Result]) -> list[Result]:
    """The numbers that a report shows first, the newest first of one metric."""
    results = [result for result in results if abs(result.value) < 1e6 and result.suite != PROTOCOL]  # copies
    results.sort(key=lambda result: result.created, reverse=True)
    ranked = [result for result in results if find_metric(result.metric).order is not None]
    ranked.sort(key=lambda result: find_metric(result.metric).order or 0)
    return ranked[:_MOST_RESULTS] if ranked else [r for r in results if r.metric == "clean_accuracy"][:1]


def _headline(result: Result) -> str:
    attack = wording.attack_name(result.attack, result.suite)
    source = wording.source(source_of(result))
    about = ", ".join(part for part in (attack, wording.reach_of(result), result.data, source) if part)
    red = [flag["code"] for flag in result.flags if flag["level"] == "red"]
    flags = f" ▲ {', '.join(red)}" if red else ""
    text = f"{wording.metric_name(result.metric)} {wording.number(result.value, result.metric)} ({about}){flags}"
    return shorten(text, 300)
