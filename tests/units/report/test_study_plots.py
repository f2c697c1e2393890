"""Axes of a study's charts."""

from hardtack.report.study_plots import study_charts


def view(columns, **plot):
    cell = {
        "paper": None, "value": 1.0, "low": None, "high": None, "n": 4, "seeds": 1, "values": [1.0], "flags": [],
        "difference": None,
    }  # fmt: skip
    return {
        "columns": [
            {"name": name, "title": name, "unit": "percent", "digits": 2, "lower": False, "ours": False}
            for name in columns
        ],
        "rows": [
            {
                "name": str(x), "title": str(x), "group": "", "state": "measured", "runs": [], "x": x,
                "cells": dict.fromkeys(columns, cell),
            }
            for x in (1.0, 2.0)
        ],
        "plots": [{"kind": "lines", "x": "x", "y": columns, "title": "", "log": False, **plot}],
        "scale": "smoke",
    }  # fmt: skip


def axes(*args, **plot):
    (chart,) = study_charts(view(*args, **plot))
    return chart["x"]["label"], chart["y"]["label"]


def test_the_x_axis_has_the_plots_own_title():
    assert axes(["clean"], x_title="pixels of a patch") == ("pixels of a patch", "clean (%)")
    assert axes(["clean"])[0] == "x"  # records of older versions have none


def test_two_columns_are_named_at_the_axis_and_more_only_in_the_key():
    assert axes(["clean", "worst"])[1] == "clean and worst (%)"
    assert axes(["a", "b", "c"])[1] == "%"
