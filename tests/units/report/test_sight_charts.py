"""Charts of saliency and visions: pictures and overlaps of every run in their place."""

import numpy as np
import pytest
from attending import saw, stared

from hardtack.analysis.feature_visualization.chart import feature_visualization_charts
from hardtack.analysis.saliency.chart import saliency_charts
from hardtack.report import charts, write_figures
from hardtack.results import read_runs


@pytest.fixture
def folder(tmp_path):
    for name in ("plain", "rspc"):
        stared(tmp_path / "runs" / name, occluder=name == "rspc")
        saw(tmp_path / "runs" / name, reached=0.5 if name == "plain" else 0.75)
    return tmp_path / "runs"


def test_runs_are_beside_each_other_choice_by_choice_and_alone(tmp_path):
    stared(tmp_path / "plain", occluder=True)
    stared(tmp_path / "rspc", occluder=True)
    gallery, bars = saliency_charts(read_runs(tmp_path))
    words = ["saliency", "attention received", "what the occluder hides"]
    assert gallery["choose"]["options"] == [*words, "plain", "rspc"]
    hides, alone = gallery["views"][2], gallery["views"][3]
    assert [one["name"] for one in hides["columns"]] == ["image", "plain", "rspc"]
    assert [one["name"] for one in alone["columns"]] == ["image", *words]
    assert [cell["text"] for cell in alone["rows"][1]["cells"]] == ["", "30% in a tenth", "50% salient", "25% salient"]
    assert alone["rows"][0]["name"] == "image 3, cat"
    assert bars["rows"] == ["saliency × attention", "saliency × occluder", "attention × occluder", "by chance"]
    values = bars["series"][1]["values"]
    assert values[1] == pytest.approx([0.25, 0.25, 0.25]) and values[3] == [0.25, None, None]


def test_what_was_compared_with_an_occluder_stands_apart(folder):
    found = saliency_charts(read_runs(folder))
    assert [len(chart["series"]) for chart in found if chart["kind"] == "bars"] == [1, 1]


def test_an_image_without_a_gradient_says_so(tmp_path):
    stared(tmp_path / "plain", occluder=False)
    (run,) = read_runs(tmp_path)
    for name in ("concentration", "overlap_saliency_attention"):
        run.findings[0].arrays[name][0] = np.nan
    first, second = saliency_charts([run])[0]["views"][0]["rows"]
    assert [cell["text"] for cell in first["cells"]] == ["", "no gradient", "no gradient"]
    assert [cell["text"] for cell in second["cells"]] == ["", "30% in a tenth", "50% salient"]


def test_captions_name_the_occluder_only_where_there_is_one(folder):
    captions = {chart["id"]: chart["caption"] for chart in saliency_charts(read_runs(folder))}
    plain, rspc = ([name for name in captions if name.endswith(place)] for place in ("0", "1"))
    assert all(("hidden" in captions[name]) == (name in rspc) for name in (*plain, *rspc)), captions
    assert "each chooses 4 of 16 patches of 2×2: most saliency, most attention received ·" in captions[plain[1]]
    assert "bright: most; coloured: hidden ·" in captions[rspc[0]]


def test_visions_have_a_row_for_every_run(folder):
    (chart,) = feature_visualization_charts(read_runs(folder))
    image, change = chart["views"]
    assert [one["name"] for one in image["columns"]] == ["class 0", "class 1"]
    assert [one["name"] for one in image["rows"]] == ["noise", "plain", "rspc"]
    assert [cell["text"] for cell in change["rows"][2]["cells"]] == ["75%", "75%"]
    assert image["rows"][1]["cells"][0]["source"] != change["rows"][1]["cells"][0]["source"]
    assert "100 steps, ℓ₂ ≤ 2.14" in chart["caption"] and "images" not in chart["caption"]
    assert charts.runs_in([chart]) == [0, 1]


def test_pictures_of_many_runs_are_not_all_on_the_page(tmp_path):
    for number in range(10):
        stared(tmp_path / f"run{number}", occluder=False)
        saw(tmp_path / f"run{number}")
    (chart,), (gallery, bars) = (
        charts_of(read_runs(tmp_path)) for charts_of in (feature_visualization_charts, saliency_charts)
    )
    assert len(chart["views"][0]["rows"]) == 1 + 8 and "pictures of the first 8 of 10 runs" in chart["caption"]
    assert len(gallery["views"][0]["columns"]) == 1 + 6 and "the first 6 of 10 runs" in gallery["caption"]
    assert len(bars["series"]) == 10


def test_visions_from_images_and_of_units_are_named(tmp_path):
    saw(tmp_path / "plain", start="image")
    (chart,) = feature_visualization_charts(read_runs(tmp_path))
    assert chart["views"][0]["columns"][1]["name"] == "image 1 → class 1" and "digits/test" in chart["caption"]
    saw(tmp_path / "other", block="blocks.2", goals=["channel 3", "channel 5"])
    chart = next(one for one in feature_visualization_charts(read_runs(tmp_path)) if "blocks.2" in one["caption"])
    assert chart["views"][0]["columns"][1]["name"] == "channel 5"
    assert chart["views"][0]["rows"][1]["cells"][0]["text"] == "0.50"


def test_they_are_drawn_for_paper(folder, tmp_path):
    names = {path.name for path in write_figures(folder, tmp_path / "figures", formats=["svg"])}
    assert {"visions-the-change-alone.svg", "saliency-overlap-digits-test-4.svg"} <= names
    assert np.sum([name.startswith("saliency-") and name.endswith(".svg") for name in names]) >= 4
