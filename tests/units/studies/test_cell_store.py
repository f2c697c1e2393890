"""Cells on disk: a copy of what a run says, used only if the run says it."""

import dataclasses
import json

import numpy as np
import pytest

from hardtack.results import Result, append_results
from hardtack.studies.cell_store import read_cell, write_cell
from hardtack.studies.cells import Measured

ID = "0123456789abcdef"


@pytest.fixture
def root(tmp_path):
    """A study's folder with one run, whose result is 0.5."""
    stated = Result(metric="robust_accuracy", value=0.5, n=4, suite="pgd", data="digits/test", evaluation="pgd-1")
    append_results(tmp_path / "models" / "run", [stated])
    return tmp_path


def cell(**changes):
    values = {
        "seed": 0, "value": 50.0, "n": 4, "low": 10.0, "high": 90.0, "run": "run", "evaluation": "pgd-1", "result": 0.5,
        "index": np.array([1, 2, 5, 9]), "vector": np.array([100.0, 0.0, 0.0, 100.0]),
    }  # fmt: skip
    return Measured(**{**values, **changes})


def read(root):
    return read_cell(root, ID, root / "models")


def test_a_cell_is_read_as_it_was_written(root):
    flag = {"level": "red", "code": "x", "message": "y", "more": 3}
    write_cell(root, ID, cell(flags=(flag,)), {"row": "a"})
    assert (again := read(root)) == cell(flags=(flag,))
    assert again.index.tolist() == [1, 2, 5, 9] and again.vector.tolist() == [100.0, 0.0, 0.0, 100.0]


def test_what_is_no_result_of_an_evaluation_is_read_without_one(root):
    plain = cell(value=12.5, result=None, low=None, high=None, index=None, vector=None, run="other", evaluation="")
    write_cell(root, ID, plain, {})
    assert read(root) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"value": 75.0, "vector": np.array([100.0, 100.0, 0.0, 100.0])},  # another value than the result
        {
            "value": 75.0,
            "result": 0.75,
            "vector": np.array([100.0, 100.0, 0.0, 100.0]),
        },  # a result that the run has not
        {"vector": np.array([100.0, 100.0, 100.0, 100.0])},  # images that do not have the mean
        {"index": np.array([1, 1, 5, 9])},
        {"index": np.array([1.0, 2.0, 5.0, 9.0])},
        {"run": "../run"},
        {"run": "elsewhere"},
        {"n": "4"},
        {"n": -1},
        {"low": "10"},
        {"value": True, "result": 1.0},
        {"evaluation": ["pgd"]},
        {"flags": ("red",)},
    ],
)
def test_a_cell_that_its_run_does_not_support_is_not_read(root, change):
    write_cell(root, ID, cell(**change), {})
    assert read(root) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"seed": 0}', "null", "[" * 5000])
def test_a_damaged_record_is_not_read(root, text):
    write_cell(root, ID, cell(), {})
    (root / "cells" / f"{ID}.json").write_text(text)
    assert read(root) is None


def test_a_cell_without_its_arrays_or_its_runs_results_is_not_read(root):
    write_cell(root, ID, cell(), {})
    (root / "cells" / f"{ID}.npz").write_bytes(b"no zip")
    assert read(root) is None
    write_cell(root, ID, cell(), {})
    assert read(root) is not None
    (root / "models" / "run" / "results.jsonl").unlink()
    assert read(root) is None


def test_a_record_is_plain_json(root):
    write_cell(
        root, ID, dataclasses.replace(cell(), flags=({"level": "red", "code": "x", "message": "y"},)), {"row": "a"}
    )
    record = json.loads((root / "cells" / f"{ID}.json").read_text())
    assert record["about"] == {"row": "a"} and record["per_image"] is True
