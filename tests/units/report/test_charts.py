"""Charts show what the results say: every value in its place with its interval, and nothing mixed that must not be."""

import math

import numpy as np
import pytest
from surveyed import (
    SEQUENCES,
    TYPES,
    attacked,
    calibrated,
    corrupted,
    flipping,
    measured,
    occluded,
)

from hardtack.report import charts, palette, write_figures, write_page
from hardtack.report.charts.paired_bars import Z
from hardtack.results import append_result, append_results, read_runs, write_verdicts


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("plain", "robust")]
    for folder in made:
        folder.mkdir()
    return made


def chart(folder, kind, place=0):
    found = [one for section in charts.sections(read_runs(folder)) for one in section["charts"] if one["kind"] == kind]
    return found[place]


# ---------------------------------------------------------------- corruptions


def test_the_heat_map_has_every_cell_and_the_means(folders, tmp_path):
    corrupted(folders[0], level=0.9)
    corrupted(folders[1], level=0.8)
    heat = chart(tmp_path, "heat")
    assert heat["rows"][0] == "gaussian noise" and heat["columns"] == ["1", "2", "3", "4", "5"]
    assert heat["choose"]["options"] == ["plain", "robust"]
    view = heat["views"][0]
    assert view["cells"][1][2] == pytest.approx([0.816, 0.796, 0.836])
    assert view["row_means"][1] == pytest.approx(0.9 - 3 * 0.028)
    falls = [0.02 + 0.008 * (place % 7) for place in range(15)]
    assert view["column_means"][4] == pytest.approx(0.9 - 5 * np.mean(falls), abs=1e-4)
    assert view["mean"] == pytest.approx(0.9 - 3 * np.mean(falls), abs=1e-4)
    assert "regenerated, not the official files" in heat["caption"] and "cifar constants" in heat["caption"]


def test_official_and_regenerated_corruptions_never_share_a_map(folders, tmp_path):
    corrupted(folders[0], level=0.9)
    corrupted(folders[1], level=0.8, source="official")
    first, second = chart(tmp_path, "heat", 0), chart(tmp_path, "heat", 1)
    assert {first["choose"]["options"][0], second["choose"]["options"][0]} == {"plain", "robust"}
    assert len(first["views"]) == len(second["views"]) == 1
    assert sum("· official files" in one["caption"] for one in (first, second)) == 1


def cell(folder, name, **how):
    settings = {"type": name, "severity": 1, "constants": "cifar", "overlays": "drawn", **how}
    if name != "frost":
        del settings["overlays"]  # as the suite has it
    made = {"suite": "corruptions", "evaluation": f"e-{folder.name}", "attack": f"{name}/1"}
    append_result(folder, measured(folder, "corrupted_accuracy", 0.5, attack_settings=settings, **made))


@pytest.mark.parametrize(
    "other, maps",
    [({}, 1), ({"seed": 1}, 1), ({"jpeg": 85}, 2), ({"constants": "imagenet"}, 2), ({"overlays": "b"}, 2)],
)
def test_corruptions_made_differently_never_share_a_map(folders, tmp_path, other, maps):
    for name in ("fog", "frost"):
        cell(folders[0], name)
        cell(folders[1], name, **other)
    (section,) = charts.sections(read_runs(tmp_path))
    heat = [one for one in section["charts"] if one["kind"] == "heat"]
    assert len(heat) == maps and all(len(one["rows"]) == 2 for one in heat)


def test_a_mean_over_severities_that_are_not_there_is_not_made_up(folders, tmp_path):
    corrupted(folders[0], level=0.9)
    corrupted(folders[1], level=0.8, severities=(1, 2))
    view = chart(tmp_path, "heat")["views"][1]
    assert view["cells"][0][1] is not None and view["cells"][0][2] is None
    assert view["row_means"][0] is None and view["mean"] is None and view["column_means"][0] is not None


def test_bars_are_means_over_severities_and_differences_to_any_baseline(folders, tmp_path):
    corrupted(folders[0], level=0.9)
    corrupted(folders[1], level=0.8)
    bars = chart(tmp_path, "bars")
    assert bars["rows"] == [name.replace("_", " ") for name in TYPES] + ["mean of all"] and bars["total"]
    assert bars["choose"]["options"] == ["nothing", "plain", "robust"] and bars["choose"]["chosen"] == 1
    assert bars["series"][0]["values"][1] == pytest.approx([0.816, 0.796, 0.836], abs=1e-4)
    wide = math.hypot(0.02, 0.02)  # no verdicts: as if they were independent
    assert bars["differences"][0][1][1] == pytest.approx([-0.1, -0.1 - wide, -0.1 + wide], abs=1e-4)
    assert bars["differences"][1][0][1][0] == pytest.approx(0.1, abs=1e-4)


def test_differences_are_paired_where_verdicts_allow_it(folders, tmp_path):
    """The second is right wherever the first is, and on 36 images more: the mean difference has little spread."""
    right = {folders[0]: np.arange(360) < 180, folders[1]: np.arange(360) < 216}
    for folder, verdicts in right.items():
        name = "verdicts/c.parquet"
        write_verdicts(folder / name, {"index": np.arange(360), "correct@fog/1": verdicts})
        settings = {"attack": "fog/1", "attack_settings": {"type": "fog", "severity": 1}, "verdicts": name}
        append_result(folder, measured(folder, "corrupted_accuracy", verdicts.mean(), suite="corruptions", **settings))
    bars = chart(tmp_path, "bars")
    half = Z * math.sqrt(0.1 * 0.9 / 360)
    assert bars["differences"][0][1][0] == pytest.approx([0.1, 0.1 - half, 0.1 + half], abs=1e-4)
    assert bars["rows"] == ["fog"], "the mean of one is no row of its own"


# ---------------------------------------------------------------- sequences and patches


def test_flips_have_a_bar_by_type_and_their_sums_with_the_flag(folders, tmp_path):
    flipping(folders[0], level=0.08)
    flipping(folders[1], level=0.05)
    bars = chart(tmp_path, "bars")
    assert bars["rows"][:-1] == [name.replace("_", " ") for name in SEQUENCES] and bars["lower"]
    assert bars["series"][1]["values"][0][0] == pytest.approx(0.025) and bars["choose"]["chosen"] == 0
    head, rows = bars["sums"]["head"], bars["sums"]["rows"]
    assert head[0]["flag"] is None and head[1]["flag"]["code"] == "unconfirmed_constants"
    assert [row["cells"] for row in rows] == [
        ["7.6% (7.3–7.9%)", "72.0% (70.0–74.0%)"], ["4.8% (4.5–5.1%)", "45.0% (43.0–47.0%)"]
    ]  # fmt: skip


def test_masks_show_their_spread_the_worst_case_and_the_clean_accuracy(folders, tmp_path):
    occluded(folders[0], level=0.95)
    strips = chart(tmp_path, "strips")
    (series,) = strips["series"]
    assert strips["rows"] == ["occlude", "noise", "drop", "pgd"] and series["clean"][0] == 0.95
    found = series["values"][0]
    assert len(found["points"]) == 100 and found["worst"][0] == pytest.approx(0.7)
    assert found["quartiles"] == pytest.approx(np.quantile(found["points"], [0.25, 0.5, 0.75]), abs=1e-5)
    assert "7 patches of 4×4 (10%), 100 masks per image, chosen at random" in strips["caption"]


def test_confidence_stands_beside_that_of_the_clean_image_and_not_their_mean(folders, tmp_path):
    occluded(folders[0], level=0.95, kinds=("occlude", "pgd"))
    occluded(folders[1], level=0.85, kinds=("occlude", "pgd"))
    bars = chart(tmp_path, "bars")
    assert bars["rows"] == ["occlude", "pgd", "clean image"]
    assert [one[0] for one in bars["series"][1]["values"]] == pytest.approx([0.72, 0.67, 0.82])
    assert bars["differences"][0][1][2][0] == pytest.approx(-0.1)


# ---------------------------------------------------------------- attacks and classes


def test_the_breakdown_accounts_for_every_image(folders, tmp_path):
    attacked(folders[0], standing=40, wrong=20)
    attacked(folders[1], standing=150, wrong=50)
    (view,) = chart(tmp_path, "stack")["views"]
    names = [part["name"] for part in view["parts"]]
    assert names[0] == "correct under attack" and names[-1] == "wrong without attack"
    assert set(names[1:-1]) == {"apgd_ce, ℓ∞ ≤ 8/255", "apgd_t, ℓ∞ ≤ 8/255", "square, ℓ₂ ≤ 0.5"}
    for bar, (standing, wrong) in zip(view["bars"], ((40, 20), (150, 50)), strict=True):
        assert sum(bar["counts"]) == bar["n"] == 360
        assert (bar["counts"][0], bar["counts"][-1]) == (standing, wrong)


def test_many_attacks_share_the_last_colour(folders, tmp_path):
    broken = {f"attack{place} linf:8/255": 20 - place for place in range(12)}
    made = {"threat": "linf:8/255", "suite": "attacks", "extra": {"broken_by": broken}}
    append_result(folders[0], measured(folders[0], "robust_accuracy", 0.25, **made))
    (view,) = chart(tmp_path, "stack")["views"]
    names = [part["name"] for part in view["parts"]]
    assert names[1:3] == ["attack0", "attack1"] and names[-2] == "other attacks" and len(names) == 9
    assert {part["role"] for part in view["parts"]} <= set(palette.PARTS)
    assert sum(view["bars"][0]["counts"]) == 360 and view["bars"][0]["counts"][-2] == sum(range(9, 15))


def test_classes_stand_worst_first_with_their_intervals(folders, tmp_path):
    attacked(folders[0], standing=100, wrong=20)
    (view,) = chart(tmp_path, "dots")["views"]
    assert view["rows"] == list("0123456789") and view["counts"] == [36] * 10
    (series,) = view["series"]
    assert series["robust"][0][0] == pytest.approx(6 / 36, abs=1e-4)
    assert series["robust"][0][1] < 6 / 36 < series["robust"][0][2] and series["clean"][0][0] > series["robust"][0][0]


def test_of_many_classes_the_worst_ten_are_drawn_and_all_are_listed(folders, tmp_path):
    attacked(folders[0], standing=100, wrong=20, classes=tuple(f"class {place}" for place in range(60)))
    dots = chart(tmp_path, "dots")
    assert len(dots["views"][0]["rows"]) == 10 and dots["views"][0]["rows"][0] == "class 0"
    assert "the 10 worst of 60 classes" in dots["views"][0]["caption"]
    assert len(dots["numbers"][0]["rows"]) == 60


def test_calibration_has_a_panel_for_each_run(folders, tmp_path):
    calibrated(folders[0], gap=0.2)
    calibrated(folders[1], gap=0.02)
    panels = chart(tmp_path, "reliability")["panels"]
    assert [(panel["name"], panel["error"]) for panel in panels] == [("plain", "20.0%"), ("robust", "2.0%")]
    for low, high, count, confidence, accuracy in panels[0]["bins"]:
        assert low < confidence < high and count and accuracy == pytest.approx(confidence - 0.2, abs=1e-4)


def test_the_area_under_a_curve_is_said_and_not_drawn(folders, tmp_path):
    made = {"suite": "sweep", "evaluation": "sweep-1", "attack": "pgd steps=20"}
    values = {"linf:4/255": 0.6, "linf:8/255": 0.3}
    results = [
        measured(folders[0], "robust_accuracy", value, threat=threat, **made) for threat, value in values.items()
    ]
    append_results(folders[0], [*results, measured(folders[0], "robustness_area", 0.55, threat="linf:8/255", **made)])
    lines = chart(tmp_path, "lines")
    assert [point[:2] for point in lines["series"][0]["points"]] == [[4, 0.6], [8, 0.3]]
    assert lines["sums"]["head"][0]["name"] == "Mean over all radii up to ℓ∞ ≤ 8/255"
    assert lines["sums"]["rows"][0]["cells"] == ["55.0% (53.0–57.0%)"]
    assert len(charts.sections(read_runs(tmp_path))[0]["charts"]) == 1


# ---------------------------------------------------------------- all of them


def test_every_chart_stands_on_the_page_with_its_numbers_and_is_a_figure(folders, tmp_path):
    for place, folder in enumerate(folders):
        corrupted(folder, level=0.9 - 0.1 * place, types=("fog", "snow"), severities=(1, 3))
        flipping(folder, level=0.08)
        occluded(folder, level=0.9, kinds=("occlude",), masks=8)
        attacked(folder, standing=100, wrong=30)
        calibrated(folder, gap=0.1)
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    sections = ("breakdown", "corruptions", "flips", "occlusion", "classes", "calibration")
    assert all(f'<section id="{name}">' in text for name in sections)
    assert text.count('<div class="plot"') == text.count('class="save"') == 8
    assert "flip probability" in text.lower() and "Expected calibration error" not in text.split("<main>")[1]
    names = {path.stem for path in write_figures(tmp_path, tmp_path / "figures", formats=["svg"])}
    assert names == {
        "breakdown", "corruptions-plain", "corruptions-robust", "corruption-types", "flips", "occlusion", "confidence",
        "classes", "calibration",
    }  # fmt: skip


def test_the_colours_of_figures_are_those_of_the_page_by_day(folders, tmp_path):
    corrupted(folders[0], level=0.9)
    css = write_page(tmp_path, tmp_path / "report.html").read_text().split("prefers-color-scheme")[0]
    assert all(f"--heat-{place}: {colour}" in css for place, colour in enumerate(palette.HEAT))
    assert all(f"--part-{role}: {colour}" in css for role, colour in palette.PARTS.items())


def test_past_twelve_runs_the_others_have_no_lanes_but_their_numbers(tmp_path):
    for place in range(14):
        folder = tmp_path / f"run-{place:02d}"
        folder.mkdir()
        corrupted(folder, level=0.9 - 0.01 * place, types=("fog",), severities=(1,))
    bars = chart(tmp_path, "bars")
    assert len(palette.with_lanes(bars["series"])) == 12 and len(bars["numbers"][0]["head"]) == 15
    assert len(palette.with_lanes(bars["series"][12:])) == 2, "unless there is nobody else"
