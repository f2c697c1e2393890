"""What the charts draw, as plain values: the page's script and the figures for papers draw the same ones.

Every chart has `id`, `kind` (who draws it), `title`, `caption`, `choose` (what the reader can switch, if anything) and
`numbers` (the tables behind it). Drawing in the browser keeps text at reading size on a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.report.charts.attention import attention_charts
from hardtack.report.charts.breakdown import breakdown_charts
from hardtack.report.charts.calibration import calibration_charts
from hardtack.report.charts.classes import class_charts
from hardtack.report.charts.complexity import complexity_charts
from hardtack.report.charts.corruptions import corruption_charts
from hardtack.report.charts.flips import flip_charts
from hardtack.report.charts.growth import growth_charts
from hardtack.report.charts.jacobian import jacobian_charts
from hardtack.report.charts.landscape import landscape_charts
from hardtack.report.charts.lines import eps_charts
from hardtack.report.charts.occlusion import occlusion_charts
from hardtack.report.charts.perturbations import perturbation_charts
from hardtack.report.charts.saliency import saliency_charts
from hardtack.report.charts.sparsity import sparsity_charts
from hardtack.report.charts.training import training_charts
from hardtack.report.charts.visions import vision_charts
from hardtack.results import Run

__all__ = ["runs_in", "sections", "training_charts"]


def sections(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The page's sections of charts in reading order; one without data is left out."""
    found = [
        _section("curves", "Curves", "Robust accuracy against ε", eps_charts(runs)),
        _section("breakdown", "Attacks", "Attack by attack", breakdown_charts(runs)),
        _section("corruptions", "Corruptions", "Common corruptions", corruption_charts(runs), layout="charts two"),
        _section("flips", "Sequences", "Perturbation sequences", flip_charts(runs)),
        _section("occlusion", "Patches", "Sensitivity to patches", occlusion_charts(runs), layout="charts two"),
        _section("classes", "Classes", "Class by class", class_charts(runs)),
        _section("calibration", "Calibration", "Calibration", calibration_charts(runs), layout="charts"),
        _section("jacobian", "Jacobians", "Jacobian spectra", jacobian_charts(runs)),
        _section("growth", "Growth", "How perturbations grow", growth_charts(runs), layout="charts two"),
        _section("attention", "Attention", "Attention under disturbance", attention_charts(runs), layout="charts two"),
        _section("sight", "Sight", "What the models see", [*saliency_charts(runs), *vision_charts(runs)]),
        _section("perturbations", "Perturbations", "Adversarial perturbations", perturbation_charts(runs)),
        _section("weights", "Weights", "Weights", sparsity_charts(runs), layout="charts two"),
        _section("landscape", "Landscape", "Loss around the weights", landscape_charts(runs)),
        _section("complexity", "Complexity", "Complexity and dimension", complexity_charts(runs), layout="charts two"),
    ]
    return [section for section in found if section["charts"]]


def runs_in(charts: Sequence[dict[str, Any]]) -> list[int]:
    """The places of the runs that any of these charts shows."""
    found: set[int] = set()
    for chart in charts:
        for part in [chart, *chart.get("views", [])]:
            entries = [
                part,
                *(one for key in ("series", "bars", "panels", "columns", "rows") for one in part.get(key, [])),
            ]
            found |= {one["run"] for one in entries if isinstance(one, dict) and one.get("run") is not None}
    return sorted(found)


def _section(
    id: str, short: str, title: str, charts: list[dict[str, Any]], *, layout: str = "stacked"
) -> dict[str, Any]:
    """`layout`: a chart takes the whole width of the page, or two or three stand beside each other if there is room."""
    return {"id": id, "short": short, "title": title, "charts": charts, "layout": layout, "runs": runs_in(charts)}
