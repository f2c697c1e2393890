"""Perturbations in the report: every model once, under its run's name, whoever was analysed beside whom."""

import shutil

import numpy as np
import pytest
from perturbed import perturbed

from hardtack.analysis.perturbations.chart import perturbation_charts
from hardtack.report.figures import write_figures
from hardtack.results import read_runs


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return read_runs(perturbed(tmp_path_factory.mktemp("both"), ("plain", "robust")))


def test_others_that_are_runs_go_by_the_runs_names(both):
    pictures, seen, spectra, amplitudes = perturbation_charts(both)
    assert [row["name"] for row in pictures["views"][0]["rows"]] == ["image", "plain", "robust"]
    assert [row.get("run") for row in pictures["views"][0]["rows"]] == [None, 0, 1]
    view = seen["views"][0]
    assert view["rows"] == view["columns"] == ["plain", "robust"]
    first, second = (run.findings[0] for run in both)
    expected = [
        [first.of("moved_accuracy", "itself → itself"), first.of("moved_accuracy", "itself → other 1")],
        [second.of("moved_accuracy", "itself → other 0"), second.of("moved_accuracy", "itself → itself")],
    ]
    values = [[cell[0] for cell in row] for row in view["cells"]]
    assert np.array(values) == pytest.approx(np.array([[one.value for one in row] for row in expected]), abs=1e-5)
    assert [view["name"].partition(" (")[0] for view in seen["views"]] == [
        "moved images", "images as they are", "perturbation alone, top-1", "perturbation alone, top-5",
        "perturbation alone, reversed, top-1", "perturbation alone, reversed, top-5",
    ]  # fmt: skip
    assert [one["name"] for one in spectra["series"]] == ["plain", "robust", "the images"]
    assert spectra["series"][-1]["run"] is None
    density, edges = (np.array(amplitudes["views"][0]["series"][0][key]) for key in ("density", "edges"))
    assert (density * np.diff(edges)).sum() == pytest.approx(1, abs=1e-3)
    assert "12 images" in seen["caption"] and "pgd with 2 steps" in seen["caption"] and "4/255" in seen["caption"]


def test_a_run_that_others_were_analysed_beside_keeps_its_colour(tmp_path):
    """Its weights, which any of its results name, tell that it is the same model."""
    _, robust = perturbed(tmp_path, ("plain", "robust"))
    shutil.rmtree(robust / "analysis")
    pictures, seen, spectra, _ = perturbation_charts(read_runs(tmp_path))
    assert [(row["name"], row.get("run")) for row in pictures["views"][0]["rows"][1:]] == [("plain", 0), ("robust", 1)]
    assert seen["views"][0]["columns"] == ["plain", "robust"] and len(spectra["series"]) == 3


def test_runs_analysed_alone_are_rows_of_one_column(tmp_path):
    charts = perturbation_charts(read_runs(perturbed(tmp_path, ("plain", "robust"), beside=False)))
    view = charts[1]["views"][0]
    assert (view["rows"], view["columns"]) == (["plain", "robust"], ["itself"])


def test_another_threat_is_another_chart_and_no_pictures_no_gallery(tmp_path):
    perturbed(tmp_path, ("plain",), pictures=0)
    perturbed(tmp_path, ("other",), threat="l2:0.5")
    charts = perturbation_charts(read_runs(tmp_path))
    kinds = [chart["kind"] for chart in charts]
    assert sorted(kinds) == ["gallery", "heat", "heat", "histogram", "histogram", "lines", "lines"]
    assert len({chart["id"] for chart in charts}) == len(charts)


def test_paper_has_a_figure_for_each_view(both, tmp_path):
    names = {path.name for path in write_figures([run.path for run in both], tmp_path, formats=["svg"])}
    assert {"perturbations-in-grey.svg", "perturbations-seen-moved-images.svg", "perturbations-spectrum.svg"} <= names
