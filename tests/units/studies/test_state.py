"""The state of studies, from the records that they leave."""

import json

import pytest
from test_study_run import small_study, write

from hardtack.commands.study import write_index
from hardtack.studies.state import read_record, state_of, states


@pytest.fixture
def record(tmp_path):
    """A record of a study of the user's own, as a run leaves it."""
    cell = {
        "paper": 80.0, "value": 75.0, "low": 70.0, "high": 80.0, "n": 8, "seeds": 1, "values": [75.0], "flags": [],
        "difference": -5.0,
    }  # fmt: skip
    row = {"name": "small", "title": "Small", "group": "", "state": "measured", "runs": [], "x": None}
    claim = {
        "says": "s", "where": "", "test": "t", "verdict": "undecided", "sentence": "", "effect": None, "low": None,
        "high": None, "p": None, "adjusted_p": None,
    }  # fmt: skip
    view = {
        "name": "mine", "title": "<b>Mine</b>", "paper": "Nobody 2026, table 0", "asks": "?", "kind": "table",
        "scale": "smoke", "seeds": 1, "notes": [], "protocol_note": "",
        "columns": [{"name": "clean", "title": "clean", "unit": "percent", "digits": 2, "lower": False, "ours": False}],
        "rows": [{**row, "cells": {"clean": cell}}], "claims": [claim], "plots": [], "figures": [],
        "command": "hardtack study mine", "created": "2026-11-18T00:00:00+00:00", "version": "0", "device": "cpu",
        "seconds": 3.0,
    }  # fmt: skip
    path = tmp_path / "studies" / "mine" / "smoke" / "study.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(view))
    return path


def test_studies_of_the_users_own_are_listed_with_the_papers(record):
    found = {state.study.name: state for state in states(record.parents[2])}
    assert found["mine"].words == "1 undecided" and found["mine"].rows == (1, 1)
    assert found["cauchy/table1"].words == "not run"
    page = write_index(record.parents[2]).read_text()
    assert "&lt;b&gt;Mine" in page and "<b>Mine" not in page and "Nobody 2026" in page


@pytest.mark.parametrize(
    "damage",
    [
        lambda view: view.pop("rows"),
        lambda view: view.update(rows={"small": 3}),
        lambda view: view.update(seconds="long"),
        lambda view: view["rows"][0].update(state=None),
        lambda view: view["rows"][0]["cells"]["clean"].update(value="75"),
        lambda view: view["claims"][0].update(verdict="proven"),
        lambda view: view["columns"].append("clean"),
        lambda view: view.update(name="../../elsewhere"),
    ],
)
def test_a_record_of_another_shape_is_as_if_it_were_not_there(record, damage):
    view = json.loads(record.read_text())
    damage(view)
    record.write_text(json.dumps(view))
    assert "mine" not in {state.study.name for state in states(record.parents[2])}
    write_index(record.parents[2])


@pytest.mark.parametrize("text", ["", "[]", "nonsense", "[" * 20_000, '{"rows": NaN}'])
def test_a_damaged_record_is_as_if_it_were_not_there(record, text):
    record.write_text(text)
    assert read_record(record.parent) is None


def test_a_study_that_was_not_run_has_its_own_number_of_rows(tmp_path):
    state = state_of(str(write(tmp_path, small_study())), tmp_path)
    assert (state.words, state.rows, state.counts) == ("not run", (0, 2), {})
