"""Pictures of the salient pixels, of the patches that receive attention, and of those that an occluder hides."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
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
from hardtack.report.charts.comparable_runs import triple
from hardtack.report.charts.section import Section
from hardtack.report.kinds.bars import Bars, bars_chart
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.gallery import column, gallery_chart, heat_over, picture, pictured, row
from hardtack.report.mask_snapshots import covered
from hardtack.results import Finding, Run

NOT_COMPARED = ("n", "batch_size", "shown")
RUNS = 6
HIDDEN = (213, 94, 0)
MOST = {"saliency": "most saliency", "attention": "most attention received", "occluder": "hidden by the occluder"}
WORDS = {"saliency": "saliency", "attention": "attention received", "occluder": "what the occluder hides"}


@charts.register(
    "saliency",
    section=Section(id="sight", short="Saliency", title="Saliency and feature visualization", order=110),
)
def saliency_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    groups = comparable_findings(runs, "saliency", _alike)
    return charts_of_groups(groups, lambda place, analysed: [*_pictures(place, analysed), *_overlaps(place, analysed)])


def _alike(finding: Finding) -> Hashable:
    settings = sorted((name, str(value)) for name, value in finding.settings.items() if name not in NOT_COMPARED)
    return *where(finding), *settings


def _about(analysed: Sequence[AnalysedRun], *more: str) -> str:
    facts = analysed[0].finding.facts
    models = dict.fromkeys(str(entry.finding.about.get("model")) for entry in analysed)
    smooth = f"mean over {facts['smooth']} noisy copies" if facts["smooth"] else ""
    of = f"gradient of the {'true' if facts['class'] == 'label' else 'predicted'} class's logit"
    return described(analysed[0].finding, wording.listed(list(models)), of, smooth, *more)


def _file(analysed: Sequence[AnalysedRun]) -> str:
    settings = analysed[0].finding.settings
    words = ("smooth" if settings["smooth"] else "", "occluder" if settings.get("occluder") else "")
    return file_of(analysed[0].finding, *words)


# ---------------------------------------------------------------- pictures


def _pictures(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    """Views of all runs for each choice of patches, then a view of all choices for each run."""
    drawn, more = pictured([entry for entry in analysed if "shown_x" in entry.finding.arrays], RUNS)
    if not drawn:
        return []
    choices = [name for name in WORDS if any(name in entry.finding.facts["choices"] for entry in drawn)]
    views = []
    if len(drawn) > 1:
        views = [_view(WORDS[name], [(entry, name, entry.name) for entry in drawn]) for name in choices]
    for entry in drawn:
        available = [name for name in choices if name in entry.finding.facts["choices"]]
        views.append(_view(entry.name, [(entry, name, WORDS[name]) for name in available]))
    below = ["the share of saliency in a tenth of the pixels"]
    if len(choices) > 1:
        below.append("the share of the chosen patches that are among the most salient")
    colours = ["bright: most", *(["coloured: hidden"] if "occluder" in choices else [])]
    chart = gallery_chart(
        id=f"saliency-{place}",
        file=_file(analysed),
        title="Saliency: which pixels the prediction depends on",
        caption=_about(drawn, "; ".join(colours), f"below: {'; '.join(below)}", more),
        views=views,
    )
    return [{**chart, "numbers": chart["numbers"][: max(1, len(choices))]}]


def _view(name: str, shown: Sequence[tuple[AnalysedRun, str, str]]) -> dict[str, Any]:
    first = shown[0][0].finding
    images = min(len(entry.finding.arrays["shown_x"]) for entry, _, _ in shown)
    classes = first.about.get("classes", [])
    rows = []
    for i in range(images):
        label = int(first.arrays["label"][i])
        label_name = wording.class_name(str(classes[label] if label < len(classes) else label))
        cells = [picture(first.arrays["shown_x"][i]), *(_cell(entry.finding, choice, i) for entry, choice, _ in shown)]
        rows.append(row(f"image {first.arrays['index'][i]}, {label_name}", cells))
    columns = [column("image"), *(column(head, entry.run) for entry, _, head in shown)]
    return {"name": name, "file": name, "columns": columns, "rows": rows}


def _cell(finding: Finding, choice: str, i: int) -> dict[str, Any] | None:
    if choice not in finding.facts["choices"]:
        return None
    arrays, image = finding.arrays, finding.arrays["shown_x"][i]
    if choice == "saliency":
        return picture(
            heat_over(image, arrays["shown_saliency"][i] / 255), _share(arrays["concentration"][i], "in a tenth")
        )
    scores = arrays[f"patches_{choice}"][i]
    share = _share(arrays[f"overlap_saliency_{choice}"][i], "salient")
    if choice == "attention":
        return picture(heat_over(image, scores / (scores.max() or 1.0)), share)
    return picture(covered(image, _highest(scores, finding.facts["patches"]), HIDDEN, strength=0.6), share)


def _share(value: float, of: str) -> str:
    return "no gradient" if np.isnan(value) else f"{100 * value:.0f}% {of}"


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    return np.asarray(scores >= np.sort(scores, axis=None)[-count])


# ---------------------------------------------------------------- overlaps


def _overlaps(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    """The share of patches that two methods both choose; the last bar is the overlap expected by chance."""
    pairs = [
        (a, b)
        for a, b in combinations(WORDS, 2)
        if any(entry.finding.of("patch_overlap", f"{a}, {b}") for entry in analysed)
    ]
    if not pairs:
        return []
    rows = [f"{a} × {b}" for a, b in pairs] + ["by chance"]
    series: list[Bars] = []
    for entry in analysed:
        results = [entry.finding.of("patch_overlap", f"{a}, {b}") for a, b in pairs]
        chance = [round(float(entry.finding.facts["chance"]), 5), None, None]
        values = [triple(result) if result else None for result in results]
        series.append({"run": entry.run, "name": entry.name, "values": [*values, chance]})
    facts = analysed[0].finding.facts
    most = ", ".join(MOST[name] for name in MOST if any(name in pair for pair in pairs))
    return [
        bars_chart(
            id=f"saliency-overlap-{place}",
            file=_file(analysed),
            title="Overlap of the chosen patches",
            rows=rows,
            total=True,
            lower=False,
            x="share of patches chosen by both",
            series=series,
            differences=[],
            caption=_about(
                analysed,
                f"each chooses {facts['patches']} of {facts['of']} patches of "
                f"{facts['patch_size']}×{facts['patch_size']}: {most}",
                "intervals: bootstrap 95%",
            ),
            numbers=[
                numbers(
                    ["", *(entry["name"] for entry in series)],
                    [[name, *(_words(entry["values"][at]) for entry in series)] for at, name in enumerate(rows)],
                )
            ],
        )
    ]


def _words(value: Sequence[float | None] | None) -> str:
    if value is None or value[0] is None:
        return "—"
    bounds = "" if value[1] is None or value[2] is None else f" ({100 * value[1]:.1f}–{100 * value[2]:.1f})"
    return f"{100 * value[0]:.1f}%{bounds}"
