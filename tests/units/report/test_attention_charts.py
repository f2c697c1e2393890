"""The charts of attention: what was found of every image, layer and head stands where it belongs."""

import numpy as np
import pytest
from attending import attended

from hardtack.analysis.attention.chart import attention_charts
from hardtack.report import charts, write_figures
from hardtack.report.kinds.heat import close_scale, heat_colours, heat_figure
from hardtack.results import read_runs


@pytest.fixture
def drawn(tmp_path):
    attended(tmp_path / "runs" / "plain", level=0.7)
    attended(tmp_path / "runs" / "rspc", level=0.9, layers=6)
    return tmp_path / "runs"


def by_id(folder):
    return {chart["id"]: chart for chart in attention_charts(read_runs(folder))}


def test_the_histogram_is_of_one_number_for_each_image(drawn):
    chart = by_id(drawn)["attention-0"]
    assert chart["choose"]["options"] == ["whole maps", "query by query", "mask by mask"]
    whole, by_row, masks = chart["views"]
    assert [one["name"] for one in whole["series"]] == ["plain", "rspc"]
    assert [one["mean"] for one in whole["series"]] == pytest.approx([0.7, 0.9], abs=0.01)
    assert [one["n"] for one in (*whole["series"], *by_row["series"])] == [40] * 4
    assert [one["n"] for one in masks["series"]] == [120, 120]
    assert "digits/test, 40 images" in chart["caption"] and "2 of 16 patches" in chart["caption"]


def test_layers_have_their_means_and_unknown_ones_are_left_out(drawn):
    found = by_id(drawn)
    similarity, distance = found["attention-similarity-0"], found["attention-distance-0"]
    assert [len(one["points"]) for one in similarity["series"]] == [4, 6]
    x, mean, low, high = similarity["series"][1]["points"][2]
    assert x == 3 and low < mean < high and mean == pytest.approx(0.9, abs=0.02)
    assert [one["name"] for one in distance["series"]][:2] == ["plain, clean", "plain, occluded"]
    assert [point[0] for point in distance["series"][0]["points"]] == [2, 3, 4]  # the first layer has no known place
    assert found["attention-heads-0"]["views"][0]["cells"][0][2] is None  # the first layer has two heads, not three


def test_maps_stand_beside_each_other_at_the_same_depth(drawn):
    maps = by_id(drawn)["attention-maps-0"]
    assert maps["choose"]["options"] == [f"blocks.{at}" for at in range(6)] and maps["choose"]["chosen"] == 5
    view = maps["views"][5]
    assert [one["name"] for one in view["columns"]] == [
        "image", "plain, clean", "plain, occluded", "rspc, clean", "rspc, occluded",
    ]  # fmt: skip
    assert [cell["text"] for cell in view["rows"][0]["cells"]] == ["", "", "0.70", "", "0.90"]
    assert view["rows"][1]["cells"][2]["about"] == "blocks.3" and view["rows"][1]["cells"][4]["about"] == "blocks.5"
    assert view["rows"][0]["name"] == "image 5, cat"


def test_other_ways_to_disturb_are_other_charts(drawn):
    attended(drawn / "plain", level=0.5, disturb="corrupt", type="fog", id="attention-b")
    assert [len(chart["views"][0]["series"]) for chart in by_id(drawn).values() if chart["kind"] == "histogram"] == [
        2,
        1,
    ]


def test_titles_say_what_tells_one_way_from_another_and_nothing_else(drawn):
    assert by_id(drawn)["attention-0"]["title"] == "Similarity of attention on clean and disturbed images"
    attended(drawn / "plain", level=0.5, disturb="corrupt", type="fog", id="attention-b")
    attended(drawn / "plain", level=0.6, disturb="corrupt", type="frost", id="attention-c")
    titles = [chart["title"] for chart in by_id(drawn).values()]
    assert len(set(titles)) == len(titles)
    assert {title for title in titles if title.startswith("Entropy")} == {
        "Entropy by layer · disturb=occlude", "Entropy by layer · disturb=corrupt type=fog",
        "Entropy by layer · disturb=corrupt type=frost",
    }  # fmt: skip


def test_they_are_drawn_for_paper_and_stand_on_the_page(drawn, tmp_path):
    (section,) = charts.sections(read_runs(drawn))
    assert section["id"] == "attention" and section["runs"] == [0, 1]
    names = {path.name for path in write_figures(drawn, tmp_path / "figures", formats=["svg"])}
    assert {"attention-whole-maps.svg", "attention-maps-blocks.5.svg", "attention-similarity.svg"} <= names


def test_colours_of_heads_run_through_the_values_of_all_runs(drawn, tmp_path):
    heads = by_id(drawn)["attention-heads-0"]
    values = [cell[0] for view in heads["views"] for row in view["cells"] for cell in row if cell]
    low, high = heads["scale"]
    assert low <= min(values) < low + 0.05 and high - 0.05 < max(values) <= high and high - low < 0.4
    assert f"colours from {100 * low:.0f} to {100 * high:.0f}" in heads["caption"]
    for view, of in zip(heads["views"], (min, max), strict=True):
        wanted = of(cell[0] for row in view["cells"] for cell in row if cell)
        colours = {tuple(patch.get_facecolor()) for patch in heat_figure(heads, view).axes[0].patches}
        assert tuple(heat_colours()((wanted - low) / (high - low))) in colours


def test_a_scale_holds_equal_shares_too():
    assert close_scale([("one", {("a", "b"): (1.0, None, None)})]) == [0.95, 1.0]
    assert close_scale([("one", {("a", "b"): (0.0, None, None)})]) == [-0.05, 0.0]
    assert close_scale([("one", {("a", "b"): (None, None, None)})]) == [0.0, 1.0]


def test_a_finding_without_maps_has_the_other_charts(tmp_path):
    attended(tmp_path / "plain", level=0.7, maps=False)
    found = by_id(tmp_path)
    assert "attention-maps-0" not in found and "attention-0" in found
    assert np.isfinite(found["attention-0"]["views"][0]["series"][0]["mean"])
