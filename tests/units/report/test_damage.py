"""A run that cannot be drawn is named, and all others are reported."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hardtack.report import write_figures, write_report
from hardtack.report.latex import latex_text
from hardtack.results import read_runs

RUN = Path(__file__).parents[2] / "data" / "v010_finished" / "run"


@pytest.fixture
def runs(tmp_path):
    for name in ("sound", "damaged"):
        shutil.copytree(RUN, tmp_path / name)
    return tmp_path


def change(path, edit):
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))


def without_facts(record):
    record["facts"] = {}


def with_strange_facts(record):
    record["facts"] = dict.fromkeys(record["facts"], "strange")


def of_another_kind(record):
    record["analysis"] = "landscape"


@pytest.mark.parametrize("edit", [without_facts, with_strange_facts, of_another_kind])
def test_an_analysis_with_unknown_fields(runs, edit):
    for path in (runs / "damaged" / "analysis").glob("*.json"):
        change(path, edit)
    page = write_report([runs]).read_text()
    assert "sound" in page and "damaged" in page and (runs / "damaged" / "card.md").is_file()


def test_an_analysis_without_its_arrays_is_named(runs):
    for path in (runs / "damaged" / "analysis").glob("*.npz"):
        np.savez(path, nothing=np.zeros(1))
    with pytest.warns(UserWarning, match="its analyses: cannot be shown"):
        page = write_report([runs]).read_text()
    assert "its analyses: cannot be shown, left out" in page
    sound = page.count("autoattack")
    assert sound > 1


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324])
@pytest.mark.parametrize("field", ["value", "low", "high", "seconds"])
@pytest.mark.filterwarnings("ignore")
def test_absurd_numbers(runs, field, value):
    for unrelated in [*runs.glob("*/examples/*"), *runs.glob("*/analysis/*"), *runs.glob("*/metrics.jsonl")]:
        unrelated.unlink()  # what takes long to draw
    path = runs / "damaged" / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line[field] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report([runs]).read_text()
    assert "sound" in page and "damaged" in page


@pytest.mark.filterwarnings("ignore")
def test_figures_of_the_other_runs_are_drawn(runs, tmp_path):
    for path in (runs / "damaged" / "analysis").glob("*.npz"):
        np.savez(path, nothing=np.zeros(1))
    for path in [*runs.glob("*/metrics.jsonl"), *runs.glob("*/examples/*"), *runs.glob("sound/analysis/*")]:
        path.unlink()
    for path in runs.glob("*/results.jsonl"):
        path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"clean-7' in line))
    assert write_figures([runs], tmp_path / "figures", formats=["svg"])


def test_a_threat_cannot_write_latex(runs):
    path = runs / "damaged" / "results.jsonl"
    path.write_text(path.read_text().replace('"threat": "linf:', '"threat": "\\\\input{/etc/passwd}:'))
    assert "\\input{" not in latex_text(read_runs(runs))
