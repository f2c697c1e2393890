"""Charts of weights, landscapes, curvature and complexity: one scale for all, a table behind each, figures on paper."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from run_folders import make_runs
from weighed import look_at

from hardtack.analysis.complexity.chart import complexity_charts
from hardtack.analysis.curvature.chart import curvature_charts
from hardtack.analysis.landscape.chart import landscape_charts
from hardtack.analysis.sparsity.chart import sparsity_charts
from hardtack.report import kinds
from hardtack.report.kinds.surface import surface_chart
from hardtack.results import read_runs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("runs")
    return [look_at(folder, seed=seed) for seed, folder in enumerate(make_runs(parent))]


@pytest.fixture(scope="module")
def runs(folders):
    return read_runs(folders)


def test_surfaces_stand_beside_each_other_on_one_scale(runs):
    clean, attacked, line, curvature = [*landscape_charts(runs), *curvature_charts(runs)]
    assert [chart["kind"] for chart in (clean, attacked, line, curvature)] == ["surface", "surface", "lines", "lines"]
    assert [panel["run"] for panel in clean["panels"]] == [0, 1, 2]
    values = np.array([panel["values"] for panel in clean["panels"]])
    assert values.shape == (3, 5, 5) and clean["low"] == pytest.approx(values.min(), rel=1e-3)
    assert clean["low"] < clean["levels"][0] < clean["levels"][-1] < clean["high"]
    assert "clean loss" in clean["caption"] and "tensors, 10 images" in clean["caption"]
    assert "loss under fgsm-1, ℓ∞ ≤ 8/255" in attacked["caption"]
    centre = values[0][2][2]
    assert clean["numbers"][0]["rows"][0][1].startswith(f"{centre:.4g}"[:4])
    assert [point[0] for point in line["series"][0]["points"]] == [-1, -0.5, 0, 0.5, 1]
    assert [head["name"] for head in curvature["sums"]["head"]] == [
        "Largest eigenvalue", "Lowest", "Trace", "Sharpness, one step", "Worst of 2 steps",
    ]  # fmt: skip


def test_a_surface_that_shoots_up_does_not_flatten_the_others():
    flat = np.add.outer(np.linspace(-1, 1, 11) ** 2, np.linspace(-1, 1, 11) ** 2)
    wild = flat.copy()
    wild[0, 0], wild[10, 10] = np.inf, 1e6
    panels = [
        {"run": i, "name": str(i), "axis": np.linspace(-1, 1, 11), "values": z} for i, z in enumerate((flat, wild))
    ]
    chart = surface_chart(id="a-0", file="", title="", caption="", x="", y="", z="", panels=panels, numbers=[])
    assert chart["high"] < 3 and chart["panels"][1]["values"][0][0] is None
    rises = np.diff(np.sqrt([0, *np.array(chart["levels"]) - chart["low"], chart["high"] - chart["low"]]))
    assert rises == pytest.approx(rises[0], rel=0.02), "a round bowl has evenly spaced rings"


def test_weights_by_component_and_against_accuracy(runs):
    density, shares, norms, against = sparsity_charts(runs)
    names = ["all weights", "convolution", "query, key and value", "feed-forward", "other"]
    assert density["choose"]["options"] == names and shares["rows"] == names
    widths = np.diff(density["views"][0]["series"][0]["edges"])
    assert np.sum(widths * density["views"][0]["series"][0]["density"]) == pytest.approx(1, abs=0.02)
    assert all(0 < value[0] < 1 for one in shares["series"] for value in one["values"] if value[0])
    assert len(norms["series"][0]["points"]) == 10
    assert against["kind"] == "scatter" and len(against["views"][0]["series"]) == 3
    assert "3 runs are too few for a correlation" in against["views"][0]["caption"]
    assert sparsity_charts(runs[:2])[-1]["kind"] != "scatter", "two runs are no trend"


def test_complexity_is_drawn_once_because_pixels_are_the_same_for_all(runs):
    charts = complexity_charts(runs)
    assert [chart["title"].split()[-2] for chart in charts] == ["ℓ₁", "ℓ₂", "ℓ∞"]
    clean, added = charts[2]["series"]
    assert [point[0] for point in clean["points"]] == [3, 12, 48, 192] and added["dash"]
    assert all(later[1] > point[1] for point, later in zip(added["points"], added["points"][1:], strict=False))
    assert charts[0]["x"]["log"] and "8/255" in charts[0]["caption"]
    assert charts[2]["caption"].endswith("dashed: what an adversary of ℓ∞ ≤ 8/255 adds")


def test_a_caption_names_no_dashed_line_where_the_adversary_adds_nothing(folders):
    runs = read_runs(folders)
    for run in runs:
        for finding in (one for one in run.findings if one.analysis == "complexity"):
            finding.arrays["added"][1:, 0] = 0.0
    l1, l2, _ = complexity_charts(runs)
    assert [one["dash"] for one in l1["series"]] == [False] and [one["dash"] for one in l2["series"]] == [False, True]
    assert "dashed" not in l1["caption"] and "adds nothing, or only at one d" in l1["caption"]


def test_figures_for_papers(runs):
    for chart in [*landscape_charts(runs), *curvature_charts(runs), *complexity_charts(runs)]:
        figure = kinds.figure(chart)
        FigureCanvasAgg(figure).draw()
        axes = len(figure.axes)
        assert axes == (2 * len(chart["panels"]) + 1 if chart["kind"] == "surface" else 1)
    chart = sparsity_charts(runs)[-1]
    axes = kinds.figure(chart, chart["views"][0]).axes[0]
    assert axes.get_xlabel() == "sparsity of all weights (%)" and len(axes.get_legend_handles_labels()[1]) == 3
