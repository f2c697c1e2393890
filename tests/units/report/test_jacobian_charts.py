"""The charts of spectra and growth: known numbers stand where they belong."""

import json

import numpy as np
import pytest
from run_folders import make_run
from spectral import spectral

from hardtack.analysis.growth.chart import growth_charts
from hardtack.analysis.jacobian.chart import jacobian_charts, shared_rows
from hardtack.base.arrays import read_arrays
from hardtack.report import charts, write_figures
from hardtack.report.kinds.violin import outline, violin_view
from hardtack.results import Result, append_results, read_runs, write_finding

LEVELS = {"plain": 2.0, "smooth": 1.5, "rough": 4.0}


@pytest.fixture
def three(tmp_path):
    for place, (name, level) in enumerate(LEVELS.items()):
        folder = make_run(tmp_path / "runs" / name, seed=place, examples=False)
        spectral(folder, level=level, layers=4 + place)
    return tmp_path / "runs"


def by_id(found):
    return {chart["id"]: chart for chart in found}


def test_violins_have_a_row_for_each_layer_and_a_lane_for_each_run(three):
    chart = by_id(jacobian_charts(read_runs(three)))["jacobian-0"]
    blocks, residual = chart["views"]
    assert blocks["rows"] == [f"blocks.{at}" for at in range(6)]
    assert residual["rows"] == [f"blocks.{at}" for at in range(1, 6)]
    plain = next(one for one in blocks["series"] if one["name"] == "plain")
    assert plain["values"][4] is None  # it has four blocks, another run six
    first = plain["values"][0]
    assert first["mean"] == pytest.approx(4.2, abs=0.1) and first["n"] == 40
    assert first["low"] <= first["quartiles"][0] <= first["quartiles"][1] <= first["quartiles"][2] <= first["high"]
    assert max(first["density"]) == 1 and len(first["at"]) == len(first["density"])
    assert "digits/test, 40 images · vit_digits" in chart["caption"] and "Golub–Kahan to 0.001" in chart["caption"]
    assert [row[2].endswith("(0.25)") for row in chart["numbers"][0]["rows"]] == [True] * 6
    assert chart["numbers"][1]["rows"][5][1:].count("—") == 2  # only one run has a sixth block


def test_spectra_of_other_pieces_do_not_replace_those_of_blocks(three):
    first = three / "plain" / "analysis" / "jacobian-a"
    record = json.loads(first.with_suffix(".json").read_text())
    record["settings"]["of"], record["facts"]["layers"] = ["network"], {"network": ["network"]}
    record["facts"] |= {
        name: {"network": record["facts"][name]["block"]} for name in ("spread", "products", "converged")
    }
    arrays = {**read_arrays(first.with_suffix(".npz")), "sigma_network": np.ones((40, 1, 1))}
    record["about"]["created"] = "2026-11-16"
    write_finding(three / "plain", "jacobian-b", record, arrays)
    found = [chart for chart in jacobian_charts(read_runs(three)) if chart["kind"] == "violin"]
    assert [len(chart["views"][0]["series"]) for chart in found] == [3, 1]
    assert [view["name"] for view in found[1]["views"]] == ["pixels to logits"]


def test_robustness_stands_against_the_mean_of_three_runs(three):
    chart = by_id(jacobian_charts(read_runs(three)))["jacobian-accuracy-0"]
    points = {one["name"]: one for one in chart["views"][0]["series"]}
    assert points.keys() == LEVELS.keys()
    assert points["rough"]["x"] > points["plain"]["x"] > points["smooth"]["x"]
    assert all(0 <= one["y"] <= 1 and one["low"] <= one["y"] <= one["high"] for one in points.values())
    assert "3 runs are too few for a correlation" in chart["views"][0]["caption"]


def test_two_runs_are_no_correlation(tmp_path):
    for place, name in enumerate(("a", "b")):
        spectral(make_run(tmp_path / name, seed=place, examples=False), level=2.0 + place)
    assert [chart["kind"] for chart in jacobian_charts(read_runs(tmp_path))] == ["violin"]
    assert not [chart for chart in growth_charts(read_runs(tmp_path)) if chart["kind"] == "scatter"]


def test_growth_is_read_along_the_blocks(three):
    found = by_id(growth_charts(read_runs(three)))
    chart = found["growth-adversarial-0"]
    plain, limit = (one for one in chart["series"] if one["name"].startswith("plain"))
    assert [point[:2] for point in plain["points"]] == [[0, 1.0], [1, 10.0], [2, 100.0], [3, 1e3], [4, 1e4]]
    assert limit["dash"] and limit["points"][1][1] == pytest.approx(1e4)
    assert chart["y"]["log"] and chart["x"]["ticks"] == [0, 1, 2, 3, 4, 5, 6]
    assert chart["numbers"][0]["rows"][0][1] == "1e+04 ×"
    steps = found["growth-steps-0"]["series"]
    assert [point[1] for point in steps[0]["points"]] == pytest.approx([10] * 4)
    euler = found["growth-euler-0"]["series"][0]["points"]
    assert [point[0] for point in euler] == [1, 3, 4]  # the second block has no residual
    depth = found["growth-depth-0"]["views"][0]["series"]
    assert sorted((one["name"], one["x"]) for one in depth) == [("plain", 4), ("rough", 6), ("smooth", 5)]


def test_limits_beyond_all_floats_are_powers(tmp_path):
    folder = make_run(tmp_path / "run", examples=False)
    spectral(folder, level=2.0, layers=120)  # the last of six limits grows by 10⁶ from block to block
    found = by_id(growth_charts(read_runs(folder)))
    assert found["growth-adversarial-0"]["numbers"][0]["rows"][0][6] == "10^720 ×"
    assert np.isfinite([point[1:] for one in found["growth-adversarial-0"]["series"] for point in one["points"]]).all()


def test_few_images_are_dots_and_wide_ranges_have_powers():
    few = violin_view("block", ["a"], [{"run": 0, "name": "x", "values": [[1.0, 2.0, 3.0]]}], x="σ")
    assert few["series"][0]["values"][0]["points"] == [1.0, 2.0, 3.0] and not few["log"]
    wide = violin_view("block", ["a"], [{"run": 0, "name": "x", "values": [np.geomspace(0.1, 100, 50)]}], x="σ")
    assert wide["log"] and wide["series"][0]["values"][0]["at"][-1] == pytest.approx(100, rel=1e-3)
    none = violin_view("b", ["a", "b"], [{"run": 0, "name": "x", "values": [[1.0] * 9, [np.nan] * 9]}], x="σ")
    assert none["series"][0]["values"][0]["points"] == [1.0] * 6 and none["series"][0]["values"][1] is None


def test_an_outline_is_high_where_the_values_are():
    random = np.random.default_rng(0)
    at, density = outline(np.concatenate([random.normal(0, 1, 900), random.normal(10, 1, 100)]))
    assert abs(at[density.argmax()]) < 1 and density[np.abs(at - 5).argmin()] < 0.02
    assert 0.05 < density[np.abs(at - 10).argmin()] < 0.2


def test_layers_of_other_names_go_by_number():
    assert shared_rows([["a", "b"], ["a", "b", "c"]]) == ["a", "b", "c"]
    assert shared_rows([["a", "b"], ["x"]]) == ["layer 1", "layer 2"]


def test_the_page_and_paper_have_them(three, tmp_path):
    found = {section["id"]: section for section in charts.sections(read_runs(three))}
    assert {"jacobian", "growth"} <= found.keys()
    assert found["jacobian"]["runs"] == found["growth"]["runs"] == [0, 1, 2]
    written = {path.name for path in write_figures(three, tmp_path / "figures", formats=["svg"])}
    assert {"jacobian-block.svg", "jacobian-residual.svg", "growth-adversarial.svg", "growth-euler.svg"} <= written


def robust(folder, value, threat, **more):
    words = {"n": 100, "low": value, "high": value, "data": "digits/test", "suite": "pgd", "evaluation": f"e-{threat}"}
    words |= {"metric": "robust_accuracy", "value": value, "threat": threat, **more}
    append_results(folder, [Result(**words)])


def test_the_measure_that_tells_runs_apart_stands_for_their_robustness(tmp_path):
    for place, name in enumerate(("a", "b", "c")):
        spectral(folder := tmp_path / name, level=2.0 + place)
        robust(folder, 0.0, "l2:2")
        robust(folder, 0.9 - place / 10, "l2:0", suite="curve")
        robust(folder, 0.5 - place / 10, "l2:0.5", suite="curve", metric="robustness_area")
    chart = by_id(jacobian_charts(read_runs(tmp_path)))["jacobian-accuracy-0"]
    assert [round(one["y"], 1) for one in chart["views"][0]["series"]] == [0.5, 0.4, 0.3]
    for place, name in enumerate(("a", "b", "c")):
        robust(tmp_path / name, 0.2 + place / 10, "linf:1/255")
    chart = by_id(jacobian_charts(read_runs(tmp_path)))["jacobian-accuracy-0"]
    assert [round(one["y"], 1) for one in chart["views"][0]["series"]] == [0.2, 0.3, 0.4]


def test_attacks_of_one_threat_are_told_apart_and_the_strongest_stands(tmp_path):
    """Two worst cases of one protocol, the second of which leaves nothing of any run."""
    for place, name in enumerate(("a", "b", "c")):
        spectral(folder := tmp_path / name, level=2.0 + place)
        worst = {"threat": "linf:1/255+l1:4", "metric": "worst_case_accuracy", "suite": "protocol"}
        robust(folder, 0.6 + place / 10, attack="pgd", **worst)
        robust(folder, 0.3 + place / 10, attack="pgd + autoattack", **worst)
        robust(folder, place / 1000, attack="pgd + autoattack + l1", **worst)
    chart = by_id(jacobian_charts(read_runs(tmp_path)))["jacobian-accuracy-0"]
    assert [round(one["y"], 1) for one in chart["views"][0]["series"]] == [0.3, 0.4, 0.5]
    assert "pgd + autoattack ·" in chart["views"][0]["caption"]
