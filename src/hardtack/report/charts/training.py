"""Curves of training: accuracies, the loss and its terms, speed, and warnings.

Every term of the loss has its own small chart with its own scale. A run has the same colour in all charts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.section import Section
from hardtack.report.history import Epoch, epochs_of, is_number, lines_of, said_warnings
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.lines import Line, lines_chart
from hardtack.results import Run

MOST_POINTS = 240
Points = list[list[float]]
Scale = Literal["percent", "points", "number"]

SCORES = ("clean", "robust")
PARTS = {  # in the order of the page; numbers reported by a user's objective follow
    "natural_loss": "Loss on clean images",
    "boosted_loss": "Boosted loss under attack",
    "kl": "KL, clean to attacked",
    "weighted_kl": "Weighted KL, clean to attacked",
    "distance": "Distance of the logits",
    "alignment": "Alignment of the features",
    "penalty": "Penalty on the weights",
    "sharpness": "Sharpness (rise of the loss nearby)",
    "damaged_accuracy": "Accuracy on masked images",
    "hidden_share": "Share of hidden patches",
    "mask_variety": "Variety of the masks",
    "occluder_gradient_norm": "Occluder's gradient norm",
}
LAST = {"gradient_norm": "Gradient norm", "lr": "Learning rate", "images_per_s": "Images per s"}
ELSEWHERE = {"kind", "step", "epoch", "loss", "accuracy", "robust_accuracy", "eps", "eps_share", *LAST}


@charts.register("training", section=Section(id="training", short="Training", title="Training", order=1000))
def training_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Charts of validation, training compared with validation, and loss, then the small charts; none without data."""
    by = "epoch" if all(is_number(line.get("epoch")) for run in runs for line in run.metrics) else "step"
    charts = [
        _validation(runs, by),
        *([_seen_and_held_out(runs), _gap(runs)] if by == "epoch" else []),
        _logged("loss", "Training loss", runs, by, small=False),
        *(_logged(part, title, runs, by) for part, title in _parts(runs).items()),
        *_radii(runs, by),
        *(_logged(field, title, runs, by) for field, title in LAST.items()),
    ]
    return [chart for chart in charts if chart["series"]]


# ---------------------------------------------------------------- validated epochs


def _validation(runs: Sequence[Run], by: str) -> dict[str, Any]:
    series, rows = [], []
    for number, run in enumerate(runs):
        validated = lines_of(run, "validation")
        warned = [[float(line[by]), words] for line, words in said_warnings(run) if is_number(line.get(by))]
        drawn = [field for field in SCORES if _points(validated, by, f"{field}_accuracy")]
        for field in drawn:
            points = _points(validated, by, f"{field}_accuracy")
            marked = warned if field == drawn[-1] else []  # only on the last curve
            name = f"{run.label}, {field}"
            series.append(_series(number, name, points, dash=field == "robust", warned=marked))
        rows += _best_and_last(run)
    caption = "solid: clean · dashed: robust" + (" · ▲ warned" if any(curve["warned"] for curve in series) else "")
    table = numbers(["Run", "Best epoch", "clean", "robust", "Last epoch", "clean", "robust"], rows)
    return _chart("validation", "Validation accuracy", series, by, kind="percent", caption=caption, table=table)


def _best_and_last(run: Run) -> list[list[str]]:
    epochs = epochs_of(run)
    if not epochs:
        return []
    best, last = max(epochs, key=lambda epoch: epoch.score), epochs[-1]
    cells = [[f"{entry.epoch:g}", wording.number(entry.clean), wording.number(entry.robust)] for entry in (best, last)]
    return [[run.label, *cells[0], *cells[1]]]


def _seen_and_held_out(runs: Sequence[Run]) -> dict[str, Any]:
    series = []
    for number, run in enumerate(runs):
        both = [epoch for epoch in epochs_of(run) if epoch.robust is not None and epoch.seen_robust is not None]
        for dash, word in enumerate(("training", "validation")):
            points = [[epoch.epoch, float((epoch.robust if dash else epoch.seen_robust) or 0)] for epoch in both]
            if points:
                series.append(_series(number, f"{run.label}, {word}", points, dash=bool(dash)))
    caption = (
        "solid: training, by the training attack on augmented images, mean over the epoch · dashed: validation, by the "
        "validation attack"
    )
    title = "Robust accuracy in training and validation"
    return _chart("overfitting", title, series, "epoch", kind="percent", caption=caption)


def _gap(runs: Sequence[Run]) -> dict[str, Any]:
    series, rows = [], []
    for number, run in enumerate(runs):
        gaps = {word: _gaps(epochs_of(run), word) for word in SCORES}
        for word, points in gaps.items():
            if points:
                series.append(_series(number, f"{run.label}, {word}", points, dash=word == "robust"))
        if any(gaps.values()):
            rows.append([run.label, *(_points_of(gaps[word]) for word in SCORES)])
    table = numbers(["Run", "clean, last epoch", "robust, last epoch"], rows)
    title = "Overfitting gap, in points of accuracy"
    caption = "training minus validation · solid: clean · dashed: robust"
    return _chart("gap", title, series, "epoch", kind="points", caption=caption, table=table)


def _gaps(epochs: Sequence[Epoch], word: str) -> Points:
    pairs = [(entry.epoch, getattr(entry, f"seen_{word}"), getattr(entry, word)) for entry in epochs]
    return [
        [epoch, on_training - held_out]
        for epoch, on_training, held_out in pairs
        if on_training is not None and held_out is not None
    ]


def _points_of(gaps: Points) -> str:
    return f"{100 * gaps[-1][1]:+.1f}" if gaps else "—"


# ---------------------------------------------------------------- every few steps


def _parts(runs: Sequence[Run]) -> dict[str, str]:
    """The numbers that objectives report during training, with their titles."""
    reported = {key for run in runs for line in lines_of(run, "train") for key in line if is_number(line[key])}
    own = sorted(reported - set(ELSEWHERE) - set(PARTS))
    named = {key: title for key, title in PARTS.items() if key in reported}
    return named | {key: key.replace("_", " ").capitalize() for key in own}


def _logged(field: str, title: str, runs: Sequence[Run], by: str, *, small: bool = True) -> dict[str, Any]:
    series = [_series(number, run.label, _points(lines_of(run, "train"), by, field)) for number, run in enumerate(runs)]
    kind: Scale = "percent" if field.endswith(("accuracy", "share")) else "number"
    shown = [line | {"marks": line["marks"] and not small} for line in series if line["points"]]
    return _chart(field, title, shown, by, kind=kind, small=small)


def _radii(runs: Sequence[Run], by: str) -> list[dict[str, Any]]:
    """The radius of the training attack, one chart per norm; a share of the radius if a run has several norms."""
    norms: dict[str, list[Line]] = {}
    for number, run in enumerate(runs):
        lines, threat = lines_of(run, "train"), _threat(run.config.get("objective"))
        scale = wording.levels(threat)
        absolute = [[x, y * scale] for x, y in _points(lines, by, "eps")]
        share = [] if absolute else _points(lines, by, "eps_share")
        norm = "share" if share else f"{threat.partition(':')[0]}{', in 1/255' if scale == 255 else ''}"
        if absolute or share:
            norms.setdefault(norm, []).append(_series(number, run.label, absolute or share))
    return [
        _chart(
            f"eps-{norm.partition(',')[0] or 'attack'}{'-255' if '255' in norm else ''}",
            "Share of the attack's radius" if norm == "share" else _radius_title(norm),
            series,
            by,
            kind="percent" if norm == "share" else "number",
            small=True,
        )
        for norm, series in norms.items()
    ]


def _radius_title(norm: str) -> str:
    name, _, unit = norm.partition(", ")
    return ", ".join(part for part in ("Attack's radius", wording.NORMS.get(name, name), unit) if part)


def _threat(settings: Any) -> str:
    """The first threat in the settings of an objective, at any depth."""
    if not isinstance(settings, Mapping):
        return ""
    if isinstance(settings.get("threat"), str):
        return str(settings["threat"])
    return next((reported for value in settings.values() if (reported := _threat(value))), "")


# ---------------------------------------------------------------- charts


def _chart(
    id: str,
    title: str,
    series: list[Line],
    by: str,
    *,
    kind: Scale,
    caption: str = "",
    table: dict[str, Any] | None = None,
    small: bool = False,
) -> dict[str, Any]:
    return lines_chart(
        id=f"training-{id.replace('_', '-')}",
        title=title,
        small=small,
        x={"label": by, "suffix": "", "word": by, "ticks": None},
        y={"label": title, "kind": kind},
        series=series,
        caption=caption,
        numbers=[table] if table and table["rows"] else [],
    )


def _series(
    number: int, name: str, points: Points, *, dash: bool = False, warned: Sequence[Sequence[Any]] = ()
) -> Line:
    """A curve. `warned` are pairs of a position on the x axis and a text; the nearest point of the curve is marked."""
    marks = [[*min(points, key=lambda point: abs(point[0] - x)), words] for x, words in warned if points]
    return {
        "run": number, "name": name, "dash": dash, "band": False, "marks": len(points) < 30, "points": points,
        "warned": marks,
    }  # fmt: skip


def _points(lines: Sequence[Mapping[str, Any]], by: str, field: str) -> Points:
    points = [
        [float(line[by]), float(line[field])]
        for line in lines
        if is_number(line.get(field)) and is_number(line.get(by))
    ]
    points.sort(key=lambda point: point[0])
    return _thinned(points)


def _thinned(points: Points) -> Points:
    """At most a few hundred points, each the mean of a bucket, so that single outliers do not dominate the curve."""
    if len(points) <= MOST_POINTS:
        return points
    edges = [round(i * len(points) / MOST_POINTS) for i in range(MOST_POINTS + 1)]
    buckets = [points[start:end] for start, end in itertools.pairwise(edges)]
    return [[bucket[-1][0], math.fsum(value for _, value in bucket) / len(bucket)] for bucket in buckets if bucket]
