"""Who stands beside whom in a chart: runs, or checkpoints of one, whose results were measured the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.report import wording
from hardtack.report.kinds.chart import rounded
from hardtack.results import Result, Run, source_of


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One row or colour of a chart; `run` is the run's place among all, which is its colour."""

    run: int
    name: str
    folder: Path
    results: list[Result]
    all_results: list[Result]

    def of(self, metric: str, **settings: Any) -> Result | None:
        """The one result of this metric whose attack has these settings."""
        for result in self.results:
            attack_settings = result.attack_settings
            if result.metric == metric and all(attack_settings.get(key) == value for key, value in settings.items()):
                return result
        return None

    def beside(self, metric: str, evaluation: str) -> Result | None:
        """What else the same evaluation measured."""
        matches = [other for other in self.all_results if (other.metric, other.evaluation) == (metric, evaluation)]
        return matches[-1] if matches else None


def where(result: Result) -> tuple[Hashable, ...]:
    """Which images, from which source: numbers on different ones never share a chart."""
    return result.data, result.n, result.data_description, source_of(result)


def comparable_results(
    runs: Sequence[Run],
    wanted: Callable[[Result], bool],
    alike: Callable[[Result], tuple[Hashable, ...]] = where,
) -> list[list[ComparedRun]]:
    """The subjects of each chart, the fullest chart first; of repeated results the newest is kept."""
    charts: dict[Any, dict[Any, dict[Any, Result]]] = defaultdict(lambda: defaultdict(dict))
    for number, run in enumerate(runs):
        for result in sorted(filter(wanted, run.results), key=lambda result: result.created):
            who = (number, result.checkpoint or "", result.weights_sha256)
            what = (result.metric, result.attack, result.threat, result.extra.get("column"))
            charts[alike(result)][who][what] = result
    groups = [_compared(by_weights, runs) for by_weights in charts.values()]
    return sorted(groups, key=lambda compared_runs: -len(compared_runs))


def _compared(by_weights: dict[Any, dict[Any, Result]], runs: Sequence[Run]) -> list[ComparedRun]:
    several = len({number for number, *_ in by_weights}) < len(by_weights)
    compared_runs = []
    for number, checkpoint, _ in sorted(by_weights, key=lambda who: (who[0], str(who[1:]))):
        run = runs[number]
        name = f"{run.label} ({checkpoint})" if several and checkpoint else run.label
        results = list(by_weights[number, checkpoint, _].values())
        compared_runs.append(
            ComparedRun(run=number, name=name, folder=run.path, results=results, all_results=run.results)
        )
    return compared_runs


def described(result: Result, *more: str) -> str:
    """A caption: the images, their source, and what else there is to say."""
    parts = [wording.images(result), wording.source(source_of(result)), *more]
    return " · ".join(part for part in parts if part)


def file_of(result: Result, *more: str) -> str:
    """What tells a chart from others of its kind in the name of a file: the images, and what was done to them."""
    return " ".join(part for part in (result.data, str(result.n or ""), *more) if part)


def attacked(result: Result) -> dict[str, str]:
    """What an attacked result is called where a reader switches between several, and in the name of a file."""
    column = result.extra.get("column")
    attack = wording.attack_name(result.attack, result.suite)
    about = f"{result.protocol}: {column}" if column else f"{attack}, {wording.reach_of(result)}"
    file = f"{result.protocol} {column}" if column else f"{attack} {result.threat} {file_of(result)}"
    return {"name": f"{about} · {wording.images(result)}", "file": file}


def triple(result: Result) -> list[float | None]:
    """A value and its interval, as charts draw them."""
    return [rounded(result.value), rounded(result.low), rounded(result.high)]
