"""Grids of pictures and distributions: every value in its place, on the page and on paper."""

import numpy as np
import pytest

from hardtack.report import charts, kinds
from hardtack.report.kinds.gallery import (
    column,
    gallery_chart,
    heat_over,
    picture,
    pictured,
    pixels_of,
    row,
    shown_runs,
)
from hardtack.report.kinds.histogram import histogram_chart, histogram_view

RED = np.zeros((8, 8, 3), np.uint8)
RED[..., 0] = 200


def grid(**more):
    columns = [column("clean"), column("plain", run=0), column("other", run=40)]
    cells = [picture(RED), picture(RED[..., 0], "0.91"), None]
    view = {"name": "block 1", "file": "block 1", "columns": columns, "rows": [row("image 3", cells)]}
    return gallery_chart(id="g-0", file="x", title="t", caption="c", views=[view], **more)


def test_a_picture_is_kept_as_it_is():
    assert np.array_equal(pixels_of(picture(RED)["source"]), RED)
    grey = pixels_of(picture(RED[..., 0])["source"])
    assert grey.shape == (8, 8, 3) and (grey == 200).all()
    assert max(pixels_of(picture(np.zeros((900, 450, 3), np.uint8))["source"]).shape) == 224
    with pytest.raises(ValueError, match="uint8"):
        picture(np.zeros((8, 8, 3)))


def test_a_gallery_knows_its_runs_and_says_what_stands_below():
    chart = grid()
    assert charts.runs_in([chart]) == [0, 40]
    (table,) = chart["numbers"]
    assert table["head"][1:] == ["clean", "plain", "other"] and table["rows"] == [["image 3", "", "0.91", "—"]]
    assert [one["name"] for one in shown_runs(chart["views"][0])["columns"]] == ["clean", "plain"]
    figure = kinds.figure(chart, chart["views"][0])
    assert len(figure.axes[0].images) == 2


def test_heat_is_bright_where_the_map_is_high():
    heat = np.zeros((2, 2))
    heat[1, 1] = 1
    over = heat_over(RED, heat).astype(int).sum(axis=-1)
    assert over[7, 7] > 2 * over[0, 0] and over.max() == over[7, 7]


def test_a_histogram_shares_its_bins_and_sums_to_one():
    found = [{"run": 0, "name": "a", "values": np.linspace(0, 1, 100)}, {"run": 1, "name": "b", "values": [0.5] * 7}]
    view = histogram_view("all", found, x="cosine")
    first, second = view["series"]
    assert first["edges"] == second["edges"] and len(first["density"]) == len(first["edges"]) - 1
    for one in view["series"]:
        assert np.sum(np.array(one["density"]) * np.diff(one["edges"])) == pytest.approx(1, abs=1e-3)
    assert (second["mean"], second["n"]) == (0.5, 7)
    chart = histogram_chart(id="h-0", file="x", title="t", caption="c", views=[view])
    assert charts.runs_in([chart]) == [0, 1]
    assert chart["numbers"][0]["rows"][1] == ["b", "0.5", "0", "0.5", "0.5", "0.5", "7"]
    assert len(kinds.figure(chart, view).axes[0].get_legend().get_texts()) == 2


def test_a_histogram_of_one_value_or_of_counted_bins():
    same = histogram_view("same", [{"run": 0, "name": "a", "values": [1.0, 1.0]}], x="cosine")
    assert same["series"][0]["edges"][0] < 1 < same["series"][0]["edges"][-1]
    counted = histogram_view(
        "w", [{"run": 0, "name": "a", "edges": [0, 1, 3], "density": [0.5, 0.25]}], x="w", log=True
    )
    assert counted["series"][0]["density"] == [0.5, 0.25] and "mean" not in counted["series"][0]


def test_bins_of_values_that_hardly_differ_have_a_width():
    view = histogram_view("all", [{"run": 0, "name": "a", "values": 0.9989 + 1e-7 * np.arange(50)}], x="cosine")
    assert (np.diff(view["series"][0]["edges"]) > 0).all()


def test_pictures_of_many_runs_are_left_out_and_that_is_said():
    assert pictured([1, 2, 3], 3) == ([1, 2, 3], "")
    assert pictured([1, 2, 3, 4], 3) == ([1, 2, 3], "pictures of the first 3 of 4 runs")
