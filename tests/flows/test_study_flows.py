"""Studies from beginning to end at scale smoke: six of them, shortened, in every run of the tests; all of them as slow.

The six are a table with several trainings, one with a grid, a figure of pictures, one of spectra, one of contours, and
a table whose rows start from another.
"""

import json

import pytest

import hardtack as ht
from hardtack.studies.study_files import list_studies

SHORT = {
    "data": {"limit": 32},
    "train": {"epochs": 1, "batch_size": 16},
    "validation": {"every": 1, "limit": 4},
    "n": 4,
}
SIX = {
    "architectures/table2": "cccc,cctt",
    "architectures/figure4": "",
    "cauchy/figure3": "",
    "rspc/figure6": "",
    "xcit/table3": "none,mixup",
    "xcit/table7": "",
}


def complete(outcome):
    """No row failed, every output is there, and a repeat computes nothing."""
    assert not outcome.failures
    for name in ("table.md", "table.tex", "table.csv", "page.html", "study.json"):
        assert (outcome.folder / name).stat().st_size > 100, name
    record = json.loads((outcome.folder / "study.json").read_text())
    assert any(row["state"] == "measured" for row in record["rows"])
    return record


@pytest.mark.parametrize("name", SIX)
def test_a_study_runs_from_beginning_to_end(name, tmp_path):
    words = {**SHORT, "output": str(tmp_path), **({"rows": SIX[name]} if SIX[name] else {})}
    complete(ht.study(name, quiet=True, **words))


@pytest.mark.slow
@pytest.mark.parametrize("name", list_studies())
def test_every_study_at_smoke(name, tmp_path):
    outcome = ht.study(name, quiet=True, output=str(tmp_path))
    record = complete(outcome)
    states = {row["name"]: row["state"] for row in record["rows"]}
    assert set(states.values()) <= {"measured", "not run at this scale", "quoted from the paper"}, states
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    again = ht.study(name, quiet=True, output=str(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == cells, (
        "a repeat measures nothing"
    )
    assert again.view["rows"] == outcome.view["rows"] and again.view["claims"] == outcome.view["claims"]
