"""Charts of attention on clean and disturbed images: similarity by image, layer and head, and attention maps."""

from __future__ import annotations

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
from hardtack.report.kinds.gallery import column, gallery_chart, heat_over, picture, pictured, row
from hardtack.report.kinds.heat import close_scale, matrix_chart
from hardtack.report.kinds.histogram import histogram_chart, histogram_view
from hardtack.report.kinds.lines import line, lines_chart
from hardtack.results import Finding, Run

NOT_COMPARED = ("n", "batch_size", "query", "shown")  # settings that may differ between runs of one chart
VIEWS = 6  # layers that the reader can choose; if there are more, some at equal distances
RUNS = 4  # pictures beside each other
FEW = 4  # images that have a histogram of their own over their masks


@charts.register(
    "attention",
    section=Section(
        id="attention", short="Attention", title="Attention under disturbance", layout="charts two", order=100
    ),
)
def attention_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The charts for each set of images and each disturbance."""
    return charts_of_groups(comparable_findings(runs, "attention", _alike), _charts)


def _charts(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    similarity, *others = _by_layer(place, analysed)
    return [_distribution(place, analysed), similarity, *_maps(place, analysed), _heads(place, analysed), *others]


def _alike(finding: Finding) -> Hashable:
    settings = sorted((name, str(value)) for name, value in finding.settings.items() if name not in NOT_COMPARED)
    return *where(finding), *settings


def _about(analysed: Sequence[AnalysedRun], *more: str) -> str:
    """The disturbance of all runs; if their patch sizes differ, each of them."""
    ways = dict.fromkeys(entry.finding.facts["disturbance"] for entry in analysed)
    if len(ways) > 1:
        ways = dict.fromkeys(f"{entry.name}: {entry.finding.facts['disturbance']}" for entry in analysed)
    models = dict.fromkeys(str(entry.finding.about.get("model")) for entry in analysed)
    return described(analysed[0].finding, wording.listed(list(models)), *ways, *more)


def _file(analysed: Sequence[AnalysedRun]) -> str:
    settings = analysed[0].finding.settings
    kind = "" if settings["kind"] == "token" else settings["kind"]
    return file_of(analysed[0].finding, settings["disturb"], settings.get("type") or "", kind)


def _layer_means(analysed: AnalysedRun, name: str) -> np.ndarray:
    """The mean over heads, images×layers. A layer without known token positions has NaN."""
    values = analysed.finding.arrays[name]
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0).sum(axis=2) / defined.sum(axis=2)


# ---------------------------------------------------------------- similarity


def _distribution(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """Figure 5 of the RSPC paper, and its figure 4: over the masks of all images, and of each where they are few."""

    def view(name: str, of: str, x: str, image: int | None = None) -> dict[str, Any]:
        series = [{"run": entry.run, "name": entry.name, "values": _per_image(entry, of, image)} for entry in analysed]
        return histogram_view(name, series, x=x, y="density of images" if of != "similarity_masks" else "density")

    several = max(entry.finding.settings["masks"] for entry in analysed) > 1
    views = [
        view("whole maps", "similarity", "cosine similarity, clean and disturbed"),
        view("query by query", "similarity_rows", "cosine similarity of a query's attention"),
        *([view("mask by mask", "similarity_masks", "cosine similarity under one mask")] if several else []),
    ]
    index = analysed[0].finding.arrays["index"].tolist()
    if several and 1 < len(index) <= FEW:
        under = "cosine similarity under one mask"
        views += [view(f"image {image}", "similarity_masks", under, place) for place, image in enumerate(index)]
    return histogram_chart(
        id=f"attention-{place}",
        file=_file(analysed),
        title="Similarity of attention on clean and disturbed images",
        caption=_about(analysed, "mean over heads and layers; 1: attention did not change; triangles: means"),
        views=views,
        label="Of",
    )


def _per_image(analysed: AnalysedRun, name: str, image: int | None = None) -> np.ndarray:
    if name == "similarity_masks":
        values = np.asarray(analysed.finding.arrays[name])
        return values.ravel() if image is None else values[image]
    return _layer_means(analysed, name).mean(axis=1)


# ---------------------------------------------------------------- by layer and head


def _by_layer(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    shown = [
        ("similarity", None, "Similarity by layer", "cosine similarity", "of clean and disturbed maps"),
        ("entropy", "entropy_disturbed", "Entropy by layer", "entropy", "1: all keys have the same weight"),
        ("distance", "distance_disturbed", "Distance by layer", "distance", "mean, as a share of the image's side"),
    ]
    return [chart for entry in shown if (chart := _lines(place, analysed, *entry)) is not None]


def _lines(
    place: int, analysed: Sequence[AnalysedRun], name: str, disturbed: str | None, title: str, word: str, measured: str
) -> dict[str, Any] | None:
    series, table = [], []
    for entry in analysed:
        for of, dash in ((name, False), (disturbed, True)):
            if of is None:
                continue
            values = _layer_means(entry, of)
            means, spread = values.mean(axis=0), 1.96 * values.std(axis=0) / max(1, len(values)) ** 0.5
            points = [
                [at + 1, rounded(mean), rounded(mean - wide), rounded(mean + wide)]
                for at, (mean, wide) in enumerate(zip(means.tolist(), spread.tolist(), strict=True))
                if not np.isnan(mean)
            ]
            if not points:
                continue
            called = (
                f"{entry.name}, {entry.finding.facts['disturbed'] if dash else 'clean'}" if disturbed else entry.name
            )
            series.append(line(entry.run, called, points, dash=dash, band=True, marks=True))
            table.append([called, *("—" if np.isnan(mean) else f"{mean:.3f}" for mean in means.tolist())])
    if not series:
        return None
    layers = max(len(cells) for cells in table) - 1
    padded = [[*cells, *["—"] * (layers + 1 - len(cells))] for cells in table]
    lines = "solid: clean, dashed: disturbed" if disturbed else ""
    return lines_chart(
        id=f"attention-{name}-{place}",
        file=_file(analysed),
        title=title,
        x={"label": "layer", "suffix": "", "word": "layer", "whole": True, "ticks": list(range(1, layers + 1))},
        y={"label": word, "kind": "number"},
        series=series,
        caption=_about(analysed, measured, lines, "mean over heads; bands: 95% of the mean over images"),
        numbers=[numbers(["Run", *map(str, range(1, layers + 1))], padded)],
    )


def _heads(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    views = []
    for entry in analysed:
        layers, means = entry.finding.facts["layers"], np.asarray(entry.finding.arrays["similarity"]).mean(axis=0)
        cells = {
            (str(name), str(head + 1)): (rounded(value), None, None)
            for name, heads in zip(layers, means.tolist(), strict=True)
            for head, value in enumerate(heads)
            if not np.isnan(value)
        }
        views.append((entry.name, cells))
    scale = close_scale(views)
    chart = matrix_chart(
        id=f"attention-heads-{place}",
        file=_file(analysed),
        title="Similarity by layer and head",
        caption=_about(
            analysed,
            "cosine similarity × 100, mean over images",
            f"colours from {100 * scale[0]:.0f} to {100 * scale[1]:.0f}",
        ),
        scale=scale,
        x="head",
        y="layer",
        views=views,
        label="Run",
    )
    for view, entry in zip(chart["views"], analysed, strict=True):
        view["run"] = entry.run
    return chart


# ---------------------------------------------------------------- attention maps


def _maps(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    """The attention of one query over the image, clean and disturbed, for every run."""
    drawn, more = pictured([entry for entry in analysed if entry.finding.facts["drawn"]], RUNS)
    if not drawn:
        return []
    longest = max(drawn, key=lambda entry: len(entry.finding.facts["drawn"]))
    depth = len(longest.finding.facts["drawn"])
    layers = sorted({int(at) for at in np.linspace(0, depth - 1, min(VIEWS, depth)).round()})
    query = analysed[0].finding.settings["query"]
    whose = "class token" if analysed[0].finding.settings["kind"] == "class" else _place_in_words(query)
    return [
        gallery_chart(
            id=f"attention-maps-{place}",
            file=_file(analysed),
            title="Attention of one token",
            caption=_about(
                drawn, f"attention of the {whose}, mean over heads; bright: most attention; "
                "the clean and the disturbed map have the same scale; below: cosine similarity of the maps", more,
            ),
            views=[_view(drawn, at / max(1, depth - 1), longest.finding.facts["drawn"][at]) for at in layers],
            label="Layer",
            chosen=len(layers) - 1,
        )
    ]  # fmt: skip


def _place_in_words(query: Sequence[float]) -> str:
    return "centre token" if list(query) == [0.5, 0.5] else f"token {query[0]:.0%} down and {query[1]:.0%} across"


def _view(analysed: Sequence[AnalysedRun], depth: float, name: str) -> dict[str, Any]:
    """The layer at this relative depth, because runs may have different numbers of layers."""
    first = analysed[0].finding
    images = min(len(entry.finding.arrays["shown_x"]) for entry in analysed)
    classes = first.about.get("classes", [])
    columns, cells = [column("image")], [[picture(first.arrays["shown_x"][i])] for i in range(images)]
    for entry in analysed:
        arrays, facts = entry.finding.arrays, entry.finding.facts
        layer = round(depth * (len(facts["drawn"]) - 1))
        columns += [column(f"{entry.name}, {word}", entry.run) for word in ("clean", facts["disturbed"])]
        for i in range(images):
            pair = [arrays["map"][i, layer], arrays["map_disturbed"][i, layer]]
            most = max(float(map_.max()) for map_ in pair) or 1.0
            under = (arrays["shown_x"][i], arrays["shown_disturbed"][i])
            texts = ("", f"{arrays['map_similarity'][i, layer]:.2f}")
            cells[i] += [
                picture(heat_over(image, map_ / most), text, facts["drawn"][layer])
                for image, map_, text in zip(under, pair, texts, strict=True)
            ]
    rows = [
        row(f"image {first.arrays['index'][i]}, {_class(classes, int(first.arrays['label'][i]))}", cells[i])
        for i in range(images)
    ]
    return {"name": name, "file": name, "columns": columns, "rows": rows}


def _class(classes: Sequence[str], label: int) -> str:
    return wording.class_name(str(classes[label] if label < len(classes) else label))
