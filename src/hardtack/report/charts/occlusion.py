"""Patches occluded, disturbed or attacked: how accuracy scatters over masks, and what becomes of the confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun, comparable_results, described, file_of, triple, where
from hardtack.report.charts.paired_bars import paired_bars_chart
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers, rounded
from hardtack.report.kinds.strips import Strip, Strips, strips_chart
from hardtack.results import REPORTED, Result, Run, source_of

ACCURACY, WORST, CONFIDENCE = "patch_accuracy", "worst_mask_accuracy", "patch_confidence"
ALIKE = ("share", "patches", "patch_size", "masks", "choose")  # settings that all kinds of one chart share


@charts.register(
    "occlusion",
    section=Section(id="occlusion", short="Patches", title="Sensitivity to patches", layout="charts two", order=50),
)
def occlusion_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each choice of masks: the spread of accuracy over them, and the mean confidence by kind."""
    charts = []
    for place, compared_runs in enumerate(comparable_results(runs, _wanted, _alike)):
        kinds = list(
            dict.fromkeys(
                measured.attack_settings["kind"] for compared in compared_runs for measured in compared.results
            )
        )
        if any(compared.of(ACCURACY) for compared in compared_runs):
            charts.append(_spread(place, compared_runs, kinds))
        if any(compared.of(CONFIDENCE) for compared in compared_runs):
            charts.append(_confidence(place, compared_runs, kinds))
    return charts


def _wanted(result: Result) -> bool:
    return result.metric in (ACCURACY, WORST, CONFIDENCE) and "kind" in result.attack_settings


def _alike(result: Result) -> tuple[Any, ...]:
    return (*where(result), *(str(result.attack_settings.get(name)) for name in ALIKE))


def _about(result: Result) -> str:
    """`7 patches of 4×4 (10%), 100 masks, chosen at random`."""
    settings = result.attack_settings
    size, share, masks, choose = (settings.get(name) for name in ("patch_size", "share", "masks", "choose"))
    parts = [f"{settings['patches']} patches" if "patches" in settings else "patches"]
    parts[0] += f" of {size}×{size}" if size else ""
    parts[0] += f" ({100 * share:.3g}%)" if isinstance(share, float) else ""
    parts.append(f"{masks} mask{'' if masks == 1 else 's'} per image" if masks else "")
    parts.append({"random": "chosen at random", "occluder": "chosen by an occluder"}.get(str(choose), ""))
    return ", ".join(part for part in parts if part)


def _images(result: Result) -> str:
    """Masks have no official files: a source is worth a word only where the number was not measured here."""
    return described(result) if source_of(result) == REPORTED else wording.images(result)


def _file(result: Result) -> str:
    return file_of(result, f"{result.attack_settings.get('masks', '')} masks".strip())


def _spread(place: int, compared_runs: Sequence[ComparedRun], kinds: Sequence[str]) -> dict[str, Any]:
    series: list[Strips] = [
        {
            "run": compared.run,
            "name": compared.name,
            "clean": _clean(compared),
            "values": [_masks(compared, kind) for kind in kinds],
        }
        for compared in compared_runs
    ]
    first = compared_runs[0].results[0]
    return strips_chart(
        id=f"occlusion-{place}",
        file=_file(first),
        title="Accuracy under different masks",
        x="Accuracy",
        rows=[wording.spaced(kind) for kind in kinds],
        series=series,
        caption=f"{_about(first)} · {_images(first)} · dots: accuracy under each mask; box: quartiles; "
        "✕: share right under every mask; bar: clean accuracy",
        numbers=[_spread_numbers(compared_runs, kinds)],
    )


def _clean(compared: ComparedRun) -> list[float | None] | None:
    clean = compared.beside("clean_accuracy", compared.results[0].evaluation)
    return triple(clean) if clean else None


def _masks(compared: ComparedRun, kind: str) -> Strip | None:
    mean, worst = compared.of(ACCURACY, kind=kind), compared.of(WORST, kind=kind)
    if mean is None:
        return None
    points = [round(float(value), 5) for value in mean.extra.get("distribution", [])]
    quartiles = [rounded(value) for value in np.quantile(points, [0.25, 0.5, 0.75])] if len(points) > 4 else None
    return {"mean": triple(mean), "worst": triple(worst) if worst else None, "points": points, "quartiles": quartiles}


def _spread_numbers(compared_runs: Sequence[ComparedRun], kinds: Sequence[str]) -> dict[str, Any]:
    rows = []
    for compared in compared_runs:
        for kind in kinds:
            if (strip := _masks(compared, kind)) is None:
                continue
            points, worst, clean = strip["points"], strip["worst"] or [None], _clean(compared) or [None]
            ends = [min(points), max(points)] if points else [None, None]
            shown = [clean[0], strip["mean"][0], *ends, worst[0]]
            rows.append([compared.name, wording.spaced(kind), *(wording.number(value) for value in shown)])
    return numbers(["Run", "Kind", "Clean", "Mean over masks", "Lowest mask", "Highest mask", "Right under all"], rows)


def _confidence(place: int, compared_runs: Sequence[ComparedRun], kinds: Sequence[str]) -> dict[str, Any]:
    grid = [[compared.of(CONFIDENCE, kind=kind) for kind in kinds] for compared in compared_runs]
    first = next(measured for row in grid for measured in row if measured)
    clean = [next((measured.extra.get("clean_confidence") for measured in row if measured), None) for row in grid]
    return paired_bars_chart(
        compared_runs,
        [wording.spaced(kind) for kind in kinds],
        [[[measured] if measured else [] for measured in row] for row in grid],
        last=("clean image", clean),
        id=f"confidence-{place}",
        file=_file(first),
        title="Confidence in the true class",
        x="Confidence",
        baseline=False,
        caption=f"mean over masks and images · {_about(first)} · {_images(first)}",
    )
