"""Runs of a study are called as its rows are."""

from pathlib import Path

from hardtack.report.study_runs import _own_results, _row_names
from hardtack.results import Finding, Run


def named(rows):
    return {path.name: name for path, name in _row_names({"rows": rows}, Path("/page")).items()}


def test_the_only_run_of_a_row_has_the_rows_title():
    assert named([{"title": "CCTT", "runs": ["../models/a"], "run_names": [""]}]) == {"a": "CCTT"}


def test_runs_of_a_row_are_told_apart_by_training_and_seed():
    row = {"title": "ResNet", "runs": ["../models/a", "../models/b"], "run_names": ["ordinary training", "PGD, seed 1"]}
    assert named([row]) == {"a": "ResNet, ordinary training", "b": "ResNet, PGD, seed 1"}


def test_records_without_names_fall_back_on_folders():
    assert named([{"title": "ResNet", "runs": ["m/a", "m/b"]}]) == {"a": "ResNet a", "b": "ResNet b"}


def test_analyses_of_other_studies_of_the_same_run_are_left_out():
    findings = [
        Finding(id=id, analysis="attention", settings={}, about={}, facts={}, notes=(), arrays={}) for id in ("a", "b")
    ]
    run = Run(path=Path("m"), label="m", findings=findings)
    kept = _own_results(run, {"name": "x/y", "rows": [{"measured_by": ["b"]}, {"measured_by": []}]})
    assert [finding.id for finding in kept.findings] == ["b"]
    assert _own_results(run, {"rows": [{}]}).findings == findings  # records of older versions do not say it
