"""Which numbers of two runs differ by more than chance, image by image (`hardtack compare A B`).

Only numbers that were measured in the same way on the same images are compared. Verdicts (correct or not) are compared
by McNemar's exact test; means of several values per image by a permutation test, which flips the signs of the
differences at random, as if the two models were exchanged.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardtack.base.errors import UserError, did_you_mean
from hardtack.results import (
    ONE_VIEW,
    Result,
    Run,
    bootstrap,
    comparable,
    distinguish,
    find_metric,
    is_share,
    paired,
    per_image,
    read_run,
    source_of,
    stored_verdicts,
)
from hardtack.results.intervals import FLIPS, sign_flip_test
from hardtack.results.leaderboard import CLEAN
from hardtack.results.record import INCIDENTAL_SETTINGS


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of two runs: `value` is the first minus the second, with its 95 % bootstrap interval."""

    about: str
    first: float
    second: float
    value: float
    low: float
    high: float
    p_value: float
    n: int
    share: bool = True  # it is printed as a percentage

    def __str__(self) -> str:
        kind = ".2%" if self.share else ".4g"
        first, second, value = (f"{number:{kind}}" for number in (self.first, self.second, self.value))
        value = value if value.startswith("-") else f"+{value}"
        numbers = f"{first:>8} {second:>8} {value:>8}  [{self.low:+{kind}}, {self.high:+{kind}}]"
        return f"{numbers}  {_p(self.p_value):<10} n={self.n:<6} {self.about}"


@dataclass(frozen=True)
class Comparison:
    first: str
    second: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()  # stored numbers that their evidence contradicts

    def __str__(self) -> str:
        head = [f"{self.first} minus {self.second}", f"{'first':>8} {'second':>8} {'differ':>8}  95 % interval"]
        return "\n".join([*head, *map(str, self.differences), *(f"RED FLAG disagrees: {note}" for note in self.notes)])


def compare(first: str | Path, second: str | Path, *, metric: str | None = None) -> Comparison:
    """All comparable numbers of two run folders; `metric` keeps one metric, single views included.

    Differences are computed from the verdict files; stored numbers that disagree with them are named in `notes`.
    """
    runs = [read_run(first), read_run(second)]
    tables = [_newest(run, metric) for run in runs]
    shared = _without_repeats({key: tables[0][key] for key in tables[0] if key in tables[1]})
    if not shared:
        raise UserError(_nothing(runs, metric))
    labels = _labels([tables[0][key] for key in shared])
    pairs = [[table[key] for table in tables] for key in shared]
    tested = [_difference(runs, pair, label) for pair, label in zip(pairs, labels, strict=True)]
    differences = [difference for difference in tested if difference is not None]
    if not differences:
        raise UserError(
            f"{runs[0].label} and {runs[1].label} have numbers in common, but they were not measured on the same images"
        )
    used = [{table[key].evaluation for key in shared} for table in tables]
    notes = [
        f"{run.label}: {id}: {wrong}"
        for run, evaluations in zip(runs, used, strict=True)
        for id, agreement in run.agreements.items()
        for wrong in agreement.wrong
        if id in evaluations
    ]
    return Comparison(runs[0].label, runs[1].label, tuple(differences), tuple(notes))


def _newest(run: Run, metric: str | None) -> dict[tuple[object, ...], Result]:
    wanted = [r for r in run.results if r.metric == metric or (metric is None and not find_metric(r.metric).per_view)]
    # of several checkpoints the best represents the run, and of several measurements the newest
    order = sorted(wanted, key=lambda result: (result.checkpoint == "best", result.created))
    return {_key(result): result for result in order if result.verdicts}


def _key(result: Result) -> tuple[object, ...]:
    """The key that must be equal. Clean accuracy does not depend on the suite that measured it: it is compared once."""
    if result.metric == CLEAN and not result.protocol:
        return CLEAN, result.data, result.n, result.data_description
    return *comparable(result), result.extra.get("column")


def _without_repeats(shared: dict[tuple[object, ...], Result]) -> list[tuple[object, ...]]:
    """Numbers that are also columns of a protocol are listed once, as columns."""

    def measured(result: Result) -> tuple[object, ...]:
        return comparable(dataclasses.replace(result, suite="", protocol=""))

    columns = {measured(result) for result in shared.values() if result.protocol}
    return [key for key, result in shared.items() if result.protocol or measured(result) not in columns]


def _nothing(runs: list[Run], metric: str | None) -> str:
    metrics = {result.metric for run in runs for result in run.results}
    if metric is not None and metric not in metrics:
        hint = did_you_mean(metric, metrics) or f"; their metrics: {', '.join(sorted(metrics))}"
        return f"neither run has the metric '{metric}'{hint}"
    return (
        f"{runs[0].label} and {runs[1].label} have no number in common: numbers can be compared if they were measured "
        "with the same settings, on the same data and the same number of images"
    )


def _labels(results: list[Result]) -> list[str]:
    """A description of each number; if several are equal, the settings that distinguish them are added."""
    labels = [_label(result) for result in results]
    same_label: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        same_label.setdefault(label, []).append(place)
    for label, places in same_label.items():
        differing = distinguish([_settings(results[place]) for place in places])
        for place, settings in zip(places, differing, strict=True):
            labels[place] = f"{label} {settings}".rstrip()
    return labels


def _label(result: Result) -> str:
    parts = [result.protocol, str(result.extra.get("column", "")), result.metric.replace("_", " ")]
    parts += [result.threat or "", "" if result.threat and result.suite == "protocol" else result.attack or ""]
    if result.metric == ONE_VIEW and "jpeg" in result.attack_settings:
        parts.append(f"JPEG {result.attack_settings['jpeg']}")
    return " ".join(part for part in (*parts, result.data) if part)


def _settings(result: Result) -> dict[str, object]:
    """Further settings that distinguish numbers; the number of images has a column of its own."""
    if result.metric == CLEAN:
        return {}
    settings = {key: value for key, value in result.attack_settings.items() if key not in ("n", *INCIDENTAL_SETTINGS)}
    return {**settings, "precision": result.precision, "source": source_of(result) or None}


def _difference(runs: list[Run], results: list[Result], label: str) -> Difference | None:
    rows = [_rows(run, result) for run, result in zip(runs, results, strict=True)]
    if rows[0] is None or rows[1] is None or set(rows[0]) != set(rows[1]):
        return None
    images = sorted(rows[0])
    a, b = (np.array([row[image] for image in images]) for row in (rows[0], rows[1]))
    low, high = bootstrap(a - b)
    binary = bool(np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all())
    return Difference(
        about=label, first=float(a.mean()), second=float(b.mean()),
        value=float((a - b).mean()), low=low, high=high, n=len(images), share=is_share(results[0].metric),
        p_value=paired(a > 0.5, b > 0.5).p_value if binary else sign_flip_test(a - b),
    )  # fmt: skip


def _rows(run: Run, result: Result) -> dict[int, float] | None:
    try:
        columns = stored_verdicts(run.path, result)
    except UserError:
        return None
    vector = per_image(result, columns)
    return None if vector is None else dict(zip(columns["index"].tolist(), vector.tolist(), strict=True))


def _p(value: float) -> str:
    if value < 1e-4:
        return "p < 0.0001"
    return f"p ≤ {value:.2g}" if value == 1 / (FLIPS + 1) else f"p = {value:.2g}"
