"""Run folders as queries read them: each part when a table needs it, and what cannot be read as a list of problems.

Folders may come from anybody. A line that is no record, a file that is too large and a link that leads out of the
folder cost themselves, not the query: they are left out and named in `problems`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hardtack.base.config import read_yaml
from hardtack.base.errors import UserError
from hardtack.base.trust import check_links
from hardtack.results.agreement import by_evaluation, check_one
from hardtack.results.disagreement import Agreement
from hardtack.results.record import Result
from hardtack.results.runs import run_labels
from hardtack.results.store import find_runs, read_metrics, read_results


class Folder:
    """One run folder. `label` is its name, made unique among the folders of the query."""

    def __init__(self, path: Path, label: str) -> None:
        self.path, self.label = path, label
        self.problems: list[str] = []
        self._agreements: dict[str, Agreement] = {}

    @cached_property
    def is_closed(self) -> bool:
        """Whether all links in the folder stay inside; nothing is read of one where they do not."""
        try:
            check_links(self.path)
        except UserError as error:
            self.problems.append(str(error))
            return False
        return True

    @cached_property
    def results(self) -> list[Result]:
        return read_results(self.path, problems=self.problems) if self.is_closed else []

    @cached_property
    def groups(self) -> dict[str, list[Result]]:
        return by_evaluation(self.results)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path, problems=self.problems) if self.is_closed else []

    @cached_property
    def config(self) -> dict[str, Any]:
        file = self.path / "config.yaml"
        if not self.is_closed or not file.is_file():
            return {}
        try:
            values = read_yaml(file, alone=True)
        except UserError as error:
            self.problems.append(str(error))
            return {}
        return values if isinstance(values, dict) else {}

    def agreement(self, result: Result) -> tuple[str, str]:
        """The state of a result and its evidence (`disagreement.STATES`), and the reason; checked when it is asked."""
        id = result.evaluation
        if id not in self._agreements:
            self._agreements[id] = check_one(self.path, id, self.groups)
        return self._agreements[id].of(result)


def read_folders(paths: str | Path | Iterable[str | Path]) -> Sequence[Folder]:
    """The run folders that `paths` name: runs themselves, or folders with runs up to three levels below."""
    found = find_runs(paths)
    return [Folder(path, label) for path, label in zip(found, run_labels(found), strict=True)]
