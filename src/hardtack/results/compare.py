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
    PROTOCOL,
    SWEEPS,
    Result,
    Run,
    bootstrap,
    comparable,
    distinguish,
    find_metric,
    is_share,
    paired,
    parse_threat,
    per_image,
    read_run,
    source_of,
    stored_verdicts,
)
from hardtack.results.intervals import FLIPS, sign_flip_test
from hardtack.results.leaderboard import CLEAN
from hardtack.results.record import INCIDENTAL_SETTINGS
from hardtack.results.why_not_compared import MOST_SAID, main_metrics, why_not


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
    not_compared: tuple[str, ...] = ()  # metrics that both runs have, measured differently, and how

    def __str__(self) -> str:
        head = [f"{self.first} minus {self.second}", f"{'first':>8} {'second':>8} {'differ':>8}  95 % interval"]
        notes = [f"RED FLAG disagrees: {note}" for note in self.notes]
        notes += [f"not compared: {why}" for why in self.not_compared]
        return "\n".join([*head, *map(str, self.differences), *notes])


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
    differences = [entry for entry in tested if isinstance(entry, Difference)]
    reasons = [entry for entry in tested if isinstance(entry, str)]
    if not differences:
        raise UserError(
            f"{runs[0].label} and {runs[1].label} have numbers in common, but not image by image: {reasons[0]}"
        )
    named = {table[key].metric for table in tables for key in shared}
    wanted = [[r for r in main_metrics(run.results) if metric in (None, r.metric)] for run in runs]
    reasons += why_not(*wanted, but=named)
    used = [{table[key].evaluation for key in shared} for table in tables]
    notes = [
        f"{run.label}: {id}: {wrong}"
        for run, evaluations in zip(runs, used, strict=True)
        for id, agreement in run.agreements.items()
        for wrong in agreement.wrong
        if id in evaluations
    ]
    return Comparison(runs[0].label, runs[1].label, tuple(differences), tuple(notes), tuple(reasons))


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
    """The numbers to show, each once.

    A number that is also a column of a protocol is listed as such; one that several suites measured in the same way
    (a radius of a sweep) is listed for the first. Robust accuracy at radius 0 is the clean accuracy, and an error that
    is one minus an accuracy beside it says nothing new.
    """
    kept: dict[tuple[object, ...], tuple[object, ...]] = {}
    for key, result in sorted(shared.items(), key=lambda item: (not item[1].protocol, item[1].suite in SWEEPS)):
        kept.setdefault(_measured(result), key)
    chosen = set(kept.values())
    return [
        key
        for key, result in shared.items()
        if key in chosen and _measured(result, find_metric(result.metric).one_minus) not in kept
    ]


def _measured(result: Result, metric: str | None = None) -> tuple[object, ...]:
    """What was measured, whichever suite or protocol did; as another metric with `metric`."""
    if metric is None:
        metric = CLEAN if result.metric == "robust_accuracy" and _radius(result) == 0 else result.metric
    same = dataclasses.replace(result, metric=metric, suite="", protocol="")
    if metric == CLEAN:
        same = dataclasses.replace(same, attack=None, attack_settings={}, threat=None, precision="")
    # an analysis has several numbers of a metric, each for a layer or class; those of a protocol are only named so
    part = None if result.suite == PROTOCOL else result.extra.get("column")
    return (*comparable(same), part)


def _radius(result: Result) -> float | None:
    try:
        return parse_threat(result.threat or "")[1]
    except UserError:
        return None


def _nothing(runs: list[Run], metric: str | None) -> str:
    metrics = {result.metric for run in runs for result in run.results}
    if metric is not None and metric not in metrics:
        hint = did_you_mean(metric, metrics) or f"; their metrics: {', '.join(sorted(metrics))}"
        return f"neither run has the metric '{metric}'{hint}"
    names = " and ".join(run.label for run in runs)
    for run in runs:
        if not run.results:
            return f"{names} have no number in common: {run.label} has none; hardtack evaluate {run.path} measures it"
    wanted = [[result for result in run.results if metric in (None, result.metric)] for run in runs]
    main = [main_metrics(results) or results for results in wanted] if metric is None else wanted
    for run, results in zip(runs, wanted, strict=True):
        if metric is not None and not results:
            return f"{names} have no number in common: {run.label} has no {metric}"
    reasons = why_not(*main)
    if reasons:
        more = f"; and {len(reasons) - MOST_SAID} more metrics" if len(reasons) > MOST_SAID else ""
        return f"{names} have no number in common: {'; '.join(reasons[:MOST_SAID])}{more}"
    for run, results in zip(runs, wanted, strict=True):
        if not any(result.verdicts for result in results):
            return f"{names} have no number in common: those of {run.label} have no values for single images"
    own = [", ".join(sorted({result.metric for result in results})) or "none" for results in wanted]
    return f"{names} have no metric in common: {runs[0].label} has {own[0]}; {runs[1].label} has {own[1]}"


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
    metric, column = result.metric.replace("_", " "), str(result.extra.get("column", ""))
    parts = [result.protocol, column, metric] if result.protocol else ["", metric, column]  # as an analysis prints it
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


def _difference(runs: list[Run], results: list[Result], label: str) -> Difference | str:
    """The difference of one number, or why there is none."""
    rows = [_rows(run, result) for run, result in zip(runs, results, strict=True)]
    for run, values in zip(runs, rows, strict=True):
        if isinstance(values, str):
            return f"{label}: {run.label}: {values}"
    first, second = (values for values in rows if isinstance(values, dict))
    if set(first) != set(second):
        shared = len(set(first) & set(second))
        return f"{label}: {len(first)} images against {len(second)}, of which {shared} are the same"
    images = sorted(first)
    a, b = (np.array([values[image] for image in images]) for values in (first, second))
    low, high = bootstrap(a - b)
    checkpoints = [result.checkpoint for result in results]
    if None not in checkpoints and checkpoints[0] != checkpoints[1]:
        label = f"{label}, checkpoint {checkpoints[0]} against {checkpoints[1]}"
    binary = bool(np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all())
    return Difference(
        about=label, first=float(a.mean()), second=float(b.mean()),
        value=float((a - b).mean()), low=low, high=high, n=len(images), share=is_share(results[0].metric),
        p_value=paired(a > 0.5, b > 0.5).p_value if binary else sign_flip_test(a - b),
    )  # fmt: skip


def _rows(run: Run, result: Result) -> dict[int, float] | str:
    """The values by index of the image, or why there are none."""
    try:
        columns = stored_verdicts(run.path, result)
    except UserError as error:
        return str(error)
    vector = per_image(result, columns)
    if vector is None or "index" not in columns:
        return f"{result.verdicts} has no values of it"
    return dict(zip(columns["index"].tolist(), vector.tolist(), strict=True))


def _p(value: float) -> str:
    if value < 1e-4:
        return "p < 0.0001"
    return f"p ≤ {value:.2g}" if value == 1 / (FLIPS + 1) else f"p = {value:.2g}"
