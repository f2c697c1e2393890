"""Rademacher complexity of linear classes against the dimension, with and without an adversary."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

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
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.lines import line, lines_chart
from hardtack.results import Finding, Run


@charts.register(
    "complexity",
    section=Section(
        id="complexity", short="Complexity", title="Complexity and dimension", layout="charts two", order=150
    ),
)
def complexity_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart for each norm that bounds the weights."""
    groups = comparable_findings(runs, "complexity", _alike)
    return charts_of_groups(
        groups, lambda place, analysed: [_chart(place, norm, analysed) for norm in analysed[0].finding.facts["norms"]]
    )


def _alike(finding: Finding) -> Hashable:
    settings = sorted((name, str(value)) for name, value in finding.settings.items() if name not in ("n", "batch_size"))
    return *where(finding), *settings


def _chart(place: int, norm: str, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    settings = analysed[0].finding.settings
    pixels = settings["of"] == "pixels"
    kinds = [("clean", "clean", False), ("added", "added by the adversary", True)]
    series, rows = [], []
    for entry in analysed if not pixels else analysed[:1]:  # the complexity on pixels is the same for all models
        arrays, at = entry.finding.arrays, entry.finding.facts["norms"].index(norm)
        dims = [int(d) for d in arrays["dims"]]
        name = "" if pixels else f"{entry.name}, "
        for kind, word, dash in kinds:
            values, errors = arrays[kind][:, at].tolist(), arrays[f"{kind}_error"][:, at].tolist()
            points = [
                [d, *(float(f"{v:.5g}") for v in (value, max(value - error, 0.1 * value), value + error))]
                for d, value, error in zip(dims, values, errors, strict=True)
                if value > 1e-6 * arrays["clean"][:, at].max()
            ]
            if len(points) > 1:
                series.append(line(entry.run, f"{name}{word}", points, dash=dash, band=True, marks=True))
        allowed = arrays["upper"] - arrays["clean"]
        for place_of, d in enumerate(dims):
            cells = [arrays["clean"], arrays["attacked"], arrays["added"], allowed, arrays["constant"]]
            rows.append([f"{name}{d}", *(f"{float(values[place_of, at]):.4g}" for values in cells)])
    eps = f"{255 * settings['eps']:.4g}/255" if pixels else f"{settings['eps']:g}"
    how = "images resized" if settings["by"] == "resize" else "random coordinates"
    facts = analysed[0].finding.facts
    dashed = any(entry["dash"] for entry in series)
    adversary = f"an adversary of ℓ∞ ≤ {eps} adds"
    added = f"dashed: what {adversary}" if dashed else f"{adversary} nothing, or only at one d" if series else ""
    signs = "all signs" if facts["exact"] else f"{facts['signs']:,} random signs; bands: 95%"
    return lines_chart(
        id=f"complexity-{norm}-{place}",
        file=file_of(analysed[0].finding, settings["of"], norm),
        title=f"Complexity of linear classes with bounded {wording.NORMS.get(norm, norm)} norm",
        x={"label": f"dimension d, by {how}", "suffix": "", "word": "d", "log": True},
        y={"label": "Rademacher complexity", "kind": "number", "log": True},
        series=series,
        caption=described(
            analysed[0].finding, f"⟨w, x⟩ of {settings['of']} with ‖w‖ ≤ {settings['bound']:g}", signs, added,
        ),
        numbers=[numbers(["d", "clean", "attacked", "added", "Lemma 1 allows", "largest c it allows"], rows)],
    )  # fmt: skip
