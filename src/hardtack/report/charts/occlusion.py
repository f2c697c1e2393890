"""Patches occluded, disturbed or attacked: how accuracy scatters over masks, and what becomes of the confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import Subject, described, file_of, side_by_side, triple, where
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
    for place, subjects in enumerate(side_by_side(runs, _wanted, _alike)):
        kinds = list(dict.fromkeys(one.attack_settings["kind"] for subject in subjects for one in subject.results))
        if any(subject.of(ACCURACY) for subject in subjects):
            charts.append(_spread(place, subjects, kinds))
        if any(subject.of(CONFIDENCE) for subject in subjects):
            charts.append(_confidence(place, subjects, kinds))
    return charts


def _wanted(result: Result) -> bool:
    return result.metric in (ACCURACY, WORST, CONFIDENCE) and "kind" in result.attack_settings


def _alike(result: Result) -> tuple[Any, ...]:
    return (*where(result), *(str(result.attack_settings.get(name)) for name in ALIKE))


def _about(result: Result) -> str:
    """`7 patches of 4×4 (10%), 100 masks, chosen at random`."""
    known = result.attack_settings
    size, share, masks, choose = (known.get(name) for name in ("patch_size", "share", "masks", "choose"))
    parts = [f"{known['patches']} patches" if "patches" in known else "patches"]
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


def _spread(place: int, subjects: Sequence[Subject], kinds: Sequence[str]) -> dict[str, Any]:
    series: list[Strips] = [
        {
            "run": subject.run,
            "name": subject.name,
            "clean": _clean(subject),
            "values": [_masks(subject, kind) for kind in kinds],
        }
        for subject in subjects
    ]
    first = subjects[0].results[0]
    return strips_chart(
        id=f"occlusion-{place}",
        file=_file(first),
        title="Accuracy under different masks",
        x="Accuracy",
        rows=[wording.spaced(kind) for kind in kinds],
        series=series,
        caption=f"{_about(first)} · {_images(first)} · dots: accuracy under each mask; box: their middle half; "
        "✕: right under every mask; bar: clean",
        numbers=[_spread_numbers(subjects, kinds)],
    )


def _clean(subject: Subject) -> list[float | None] | None:
    clean = subject.beside("clean_accuracy", subject.results[0].evaluation)
    return triple(clean) if clean else None


def _masks(subject: Subject, kind: str) -> Strip | None:
    mean, worst = subject.of(ACCURACY, kind=kind), subject.of(WORST, kind=kind)
    if mean is None:
        return None
    points = [round(float(value), 5) for value in mean.extra.get("distribution", [])]
    quartiles = [rounded(value) for value in np.quantile(points, [0.25, 0.5, 0.75])] if len(points) > 4 else None
    return {"mean": triple(mean), "worst": triple(worst) if worst else None, "points": points, "quartiles": quartiles}


def _spread_numbers(subjects: Sequence[Subject], kinds: Sequence[str]) -> dict[str, Any]:
    rows = []
    for subject in subjects:
        for kind in kinds:
            if (found := _masks(subject, kind)) is None:
                continue
            points, worst, clean = found["points"], found["worst"] or [None], _clean(subject) or [None]
            ends = [min(points), max(points)] if points else [None, None]
            shown = [clean[0], found["mean"][0], *ends, worst[0]]
            rows.append([subject.name, wording.spaced(kind), *(wording.number(value) for value in shown)])
    return numbers(["Run", "Kind", "Clean", "Mean over masks", "Lowest mask", "Highest mask", "Right under all"], rows)


def _confidence(place: int, subjects: Sequence[Subject], kinds: Sequence[str]) -> dict[str, Any]:
    found = [[subject.of(CONFIDENCE, kind=kind) for kind in kinds] for subject in subjects]
    first = next(one for row in found for one in row if one)
    clean = [next((one.extra.get("clean_confidence") for one in row if one), None) for row in found]
    return paired_bars_chart(
        subjects,
        [wording.spaced(kind) for kind in kinds],
        [[[one] if one else [] for one in row] for row in found],
        last=("clean image", clean),
        id=f"confidence-{place}",
        file=_file(first),
        title="Confidence in the true class",
        x="Confidence",
        baseline=False,
        caption=f"mean over masks and images · {_about(first)} · {_images(first)}",
    )
