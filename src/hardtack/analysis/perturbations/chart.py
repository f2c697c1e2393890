"""Charts of adversarial perturbations: pictures, accuracies of all models on them, amplitudes and frequencies."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_analyses import (
    AnalysedRun,
    charts_of_groups,
    comparable_findings,
    described,
    file_of,
    where,
)
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers, rounded
from hardtack.report.kinds.gallery import column, gallery_chart, picture, pictured, row
from hardtack.report.kinds.heat import Cells, matrix_chart
from hardtack.report.kinds.histogram import histogram_chart, histogram_view
from hardtack.report.kinds.lines import line, lines_chart
from hardtack.results import Finding, Run

SHOWN = 8  # images
MAKERS = 8  # models whose perturbations are shown
GREY = (0.299, 0.587, 0.114)  # luminance of red, green and blue
CHANNELS = ("red", "green", "blue")
ITSELF = "itself"


@charts.register(
    "perturbations",
    section=Section(id="perturbations", short="Perturbations", title="Adversarial perturbations", order=120),
)
def perturbation_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The charts for each set of images, threat and attack."""

    def charts(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
        names = _run_names(runs, analysed)
        makers = _makers(analysed, names)
        drawn = [
            _accuracies(place, analysed, names),
            _spectra(place, analysed, makers),
            _amplitudes(place, analysed, makers),
        ]
        return [*_pictures(place, analysed, makers), *drawn]

    return charts_of_groups(comparable_findings(runs, "perturbations", _alike), charts)


def _alike(finding: Finding) -> Hashable:
    return *where(finding), finding.facts["threat"], str(finding.facts["attack"]), str(finding.facts["top"])


def _about(analysed: Sequence[AnalysedRun], *more: str) -> str:
    facts = analysed[0].finding.facts
    attack = facts["attack"]
    steps = f" with {attack['steps']} steps" if attack.get("steps") else ""
    models = ", ".join(dict.fromkeys(str(entry.finding.about.get("model") or "") for entry in analysed))
    attacked = f"{attack['name']}{steps}, {wording.threat_name(facts['threat'])}"
    return described(analysed[0].finding, models, attacked, *more)


def _file(analysed: Sequence[AnalysedRun]) -> str:
    return file_of(analysed[0].finding, analysed[0].finding.facts["threat"])


# ---------------------------------------------------------------- models


RunNames = dict[str, tuple[int, str]]  # digest of the weights → number and name of the run


class _Maker:
    """One model's perturbations: the run's own, or those of another model that it was analysed beside."""

    def __init__(self, finding: Finding, place: int, name: str, run: int | None) -> None:
        self.arrays, self.place, self.name, self.run = finding.arrays, place, name, run

    def of(self, name: str) -> np.ndarray:
        """The part of an array that belongs to this model."""
        return self.arrays[name][:, self.place]


def _run_names(runs: Sequence[Run], analysed: Sequence[AnalysedRun]) -> RunNames:
    """The runs of this page by the digest of their weights."""
    names = {
        str(result.weights_sha256)[:12]: (place, run.label)
        for place, run in enumerate(runs)
        for result in run.results
        if result.weights_sha256
    }
    return names | {entry.weights[:12]: (entry.run, entry.name) for entry in analysed if entry.weights}


def _models(entry: AnalysedRun, names: RunNames) -> list[tuple[int | None, str]]:
    """Run and name of the models of a finding. A model that is not a run of this page has its own label."""
    facts = entry.finding.facts
    others = zip(facts["weights"], facts["judges"][1:], strict=True)
    return [(entry.run, entry.name), *(names.get(weights, (None, label)) for weights, label in others)]


def _makers(analysed: Sequence[AnalysedRun], names: RunNames) -> list[_Maker]:
    """Every model once; runs of this page come first, in their order."""
    makers: dict[str, _Maker] = {entry.name: _Maker(entry.finding, 0, entry.name, entry.run) for entry in analysed}
    for entry in analysed:
        for place, (run, name) in enumerate(_models(entry, names)[: len(entry.finding.facts["makers"])]):
            makers.setdefault(name, _Maker(entry.finding, place, name, run))
    return sorted(makers.values(), key=lambda maker: math.inf if maker.run is None else maker.run)


# ---------------------------------------------------------------- pictures


def _pictures(place: int, analysed: Sequence[AnalysedRun], makers: Sequence[_Maker]) -> list[dict[str, Any]]:
    first = analysed[0].finding.arrays
    makers, more = pictured(makers, MAKERS)
    shown = min(SHOWN, *(len(maker.arrays["pictures"]) for maker in makers))
    if shown == 0:
        return []
    classes = analysed[0].finding.about.get("classes", [])
    heads = [column(f"image {first['index'][i]}, {_class(classes, first['label'][i])}") for i in range(shown)]
    images = row("image", [picture(_upright(first["images"][i])) for i in range(shown)])
    views = [
        {
            "name": name,
            "file": name,
            "columns": heads,
            "rows": [
                images,
                *(
                    row(entry.name, [_cell(entry, i, classes, grey) for i in range(shown)], entry.run)
                    for entry in makers
                ),
            ],
        }
        for name, grey in (("in colour", False), ("in grey", True))
    ]
    scale = (
        "(δ + ε) / 2ε" if str(analysed[0].finding.facts["threat"]).startswith("linf") else "each to its largest value"
    )
    chart = gallery_chart(
        id=f"perturbations-{place}",
        file=_file(analysed),
        title="What the perturbations look like",
        caption=_about(
            analysed, f"scaled to [0, 1] by {scale}; below: the model's prediction for the perturbation alone", more
        ),
        views=views,
    )
    return [{**chart, "numbers": chart["numbers"][:1]}]  # both views have the same table


def _cell(maker: _Maker, i: int, classes: Sequence[str], grey: bool) -> dict[str, Any]:
    pixels = _upright(maker.of("pictures")[i])
    pixels = pixels.repeat(3, axis=-1) if pixels.shape[-1] == 1 else pixels
    predicted, reversed = (_bare(classes, answer) for answer in maker.of("answer_alone")[i, maker.place])
    shown = np.round(pixels @ GREY).astype(np.uint8) if grey else pixels
    return picture(shown, f"seen: {predicted}", f"reversed: {reversed}")


def _upright(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(pixels, 0, -1))


def _class(classes: Sequence[str], number: int) -> str:
    return wording.class_name(_bare(classes, number))


def _bare(classes: Sequence[str], number: int) -> str:
    """The name of the class; the first one if it has several, as in ImageNet."""
    return str(classes[number]).partition(",")[0] if number < len(classes) else str(number)


# ---------------------------------------------------------------- accuracies


def _accuracies(place: int, analysed: Sequence[AnalysedRun], names: RunNames) -> dict[str, Any]:
    top = analysed[0].finding.facts["top"]
    chance = {k: k / analysed[0].finding.facts["classes"] for k in top}
    measures = [("moved images", "moved_accuracy", ""), ("images as they are", "unmoved_accuracy", "")]
    for sign, word in (("", ""), (", reversed", ", reversed")):
        measures += [
            (f"perturbation alone{word}, top-{k} (chance {wording.number(chance[k])})", f"alone_top{k}_accuracy", sign)
            for k in top
        ]
    views = [(name, _cells(analysed, names, metric, sign)) for name, metric, sign in measures]
    return matrix_chart(
        id=f"perturbations-seen-{place}",
        file=_file(analysed),
        title="Accuracy on attacked images, and on perturbations alone",
        y="made by",
        x="judged by",
        views=views,
        label="Shown",
        caption=_about(analysed, "against the label of the image; reversed: x − x_adv", "intervals: 95%"),
    )


def _cells(analysed: Sequence[AnalysedRun], run_names: RunNames, metric: str, sign: str) -> Cells:
    cells: Cells = {}
    alone = all(len(entry.finding.facts["judges"]) == 1 for entry in analysed)  # then there is only one column
    for entry in analysed:
        names, facts = [name for _, name in _models(entry, run_names)], entry.finding.facts
        for maker, maker_name in zip(facts["makers"], names, strict=False):
            for classifier, classifier_name in zip(facts["judges"], names, strict=True):
                column = classifier if metric == "unmoved_accuracy" else f"{maker} → {classifier}{sign}"
                result = entry.finding.of(metric, column)
                made_by = "as they are" if metric == "unmoved_accuracy" and not alone else maker_name
                at = made_by, ITSELF if alone else classifier_name
                if result is not None and (maker == ITSELF or at not in cells):
                    cells[at] = (rounded(result.value), rounded(result.low), rounded(result.high))
    places = {name: place for place, name in run_names.values()}  # runs in their order, then the others

    def order(at: tuple[str, str]) -> list[float]:
        return [places.get(name, math.inf) for name in at]

    return {at: cells[at] for at in sorted(cells, key=order)}


# ---------------------------------------------------------------- frequencies and amplitudes


def _spectra(place: int, analysed: Sequence[AnalysedRun], makers: Sequence[_Maker]) -> dict[str, Any]:
    first = analysed[0].finding.arrays
    series = [
        line(entry.run, entry.name, _decibels(first["frequencies"], entry.of("spectrum")), band=True)
        for entry in makers
        if entry.run is not None
    ]
    natural = _decibels(first["frequencies"], first["spectrum_images"])
    series.append(line(None, "the images", natural, dash=True, band=True))
    rows = [[entry.name, _mean(entry.of("frequency"))] for entry in makers]
    return lines_chart(
        id=f"perturbations-spectrum-{place}",
        file=_file(analysed),
        title="Power of the perturbations by frequency, in dB against white noise",
        x={"label": "spatial frequency, in cycles per pixel", "suffix": " cycles per pixel", "word": "frequency"},
        y={"label": "power against white noise, in dB", "kind": "number"},
        series=series,
        caption=_about(
            analysed,
            "mean over rings of equal frequency; 0 dB: white noise; dashed: the clean images; bands: 95%",
        ),
        numbers=[
            numbers(
                ["", "mean frequency, in cycles per pixel"],
                [*rows, ["the images", _mean(first["frequency_images"])], ["white noise", "0.383"]],
            )
        ],
    )


def _decibels(frequencies: np.ndarray, power: np.ndarray) -> list[list[float | None]]:
    """The curve of the mean over images, with its interval."""
    mean = power.mean(axis=0)
    half = 1.96 * power.std(axis=0) / math.sqrt(len(power))

    def db(value: float) -> float | None:
        return round(10 * math.log10(value), 3) if value > 1e-9 else None

    points = [
        [round(float(at), 5), db(middle), db(middle - spread), db(middle + spread)]
        for at, middle, spread in zip(frequencies, mean, half, strict=True)
    ]
    return [point for point in points if point[1] is not None]


def _amplitudes(place: int, analysed: Sequence[AnalysedRun], makers: Sequence[_Maker]) -> dict[str, Any]:
    runs = [entry for entry in makers if entry.run is not None]
    bound = "ε" if "amplitude_at_bound" in analysed[0].finding.arrays else "the image's largest |δ|"
    views = [
        histogram_view(name, [_counted(entry, channel) for entry in runs], x=f"δ in multiples of {bound}")
        for name, channel in (
            ("all channels", slice(None)),
            *((name, slice(i, i + 1)) for i, name in enumerate(CHANNELS)),
        )
    ]
    head = ["", "share at ±ε", "mean |δ|, in 1/255", *(f"{name}: mean |δ|" for name in CHANNELS), "ℓ₂ size"]
    return histogram_chart(
        id=f"perturbations-amplitude-{place}",
        file=_file(analysed),
        title="Size of the perturbations",
        caption=_about(analysed, "all values of all perturbations; at both ends: values at the bound"),
        views=views,
        numbers=[numbers(head, [_sizes(entry) for entry in makers])],
    )


def _counted(entry: _Maker, channel: slice) -> dict[str, Any]:
    counts = entry.of("amplitude_counts")[:, channel].sum(axis=(0, 1)).astype(float)
    edges = np.linspace(-1, 1, len(counts) + 1)
    density = counts / max(counts.sum(), 1) / np.diff(edges)  # nothing was counted where no image was perturbed
    return {"run": entry.run, "name": entry.name, "edges": edges, "density": density}


def _sizes(entry: _Maker) -> list[str]:
    at_bound = (
        wording.number(float(entry.of("amplitude_at_bound").mean())) if "amplitude_at_bound" in entry.arrays else "—"
    )
    mean = 255 * entry.of("amplitude_mean").mean(axis=0)
    return [entry.name, at_bound, _mean(mean), *(f"{value:.3g}" for value in mean), _mean(entry.of("amplitude_l2"))]


def _mean(values: np.ndarray) -> str:
    return f"{float(values.mean()):.3g}"
