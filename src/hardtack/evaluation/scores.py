"""Numbers about the images as they are, and about a whole curve: top-5, calibration, classes, area."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardtack.results import Result, bootstrap, wilson
from hardtack.results.calibration import calibration_error, calibration_interval, reliability
from hardtack.results.metrics import area_under

TOP_5_ABOVE = 10  # classes; with fewer, five of them say little
Columns = Mapping[str, np.ndarray]


def clean_results(
    columns: Columns, classes: Sequence[str], flags: Sequence[Any], common: Mapping[str, Any], *, whole: bool
) -> list[Result]:
    """Clean accuracy; `whole`: and all else that can be said of the images as they are."""
    results = [accuracy("clean_accuracy", columns["clean_correct"], columns["label"], classes, flags, common)]
    if not whole:
        return results
    count = len(classes) or 1 + int(max(columns["label"].max(), columns["clean_prediction"].max()))
    if count > TOP_5_ABOVE:
        results.append(accuracy("top5_accuracy", columns["clean_rank"] < 5, columns["label"], (), flags, common))
    return [*results, calibration(columns["clean_certainty"], columns["clean_correct"], flags, common)]


def accuracy(
    metric: str,
    right: np.ndarray,
    label: np.ndarray,
    classes: Sequence[str],
    flags: Sequence[Any],
    common: Mapping[str, Any],
) -> Result:
    """A share of the images with Wilson's interval, and of each class where classes are given."""
    count, n = int(right.sum()), len(right)
    low, high = wilson(count, n)
    extra = dict(common["extra"])
    if classes:
        extra["per_class"] = per_class(right, label, classes)
    return Result(
        metric=metric, value=count / n, low=low, high=high, n=n, flags=tuple(flags), **{**common, "extra": extra}
    )


def per_class(right: np.ndarray, label: np.ndarray, classes: Sequence[str]) -> dict[str, list[Any]]:
    """Of every class its name, its images, and those that are right."""
    count = len(classes)
    total = np.bincount(label, minlength=count)[:count]
    return {
        "classes": list(classes), "n": total.tolist(),
        "right": np.bincount(label[right.astype(bool)], minlength=count)[:count].tolist(),
    }  # fmt: skip


# ---------------------------------------------------------------- calibration


def calibration(certainty: np.ndarray, correct: np.ndarray, flags: Sequence[Any], common: Mapping[str, Any]) -> Result:
    """Expected calibration error; its bins, (low, high, images, mean certainty, accuracy), are kept for the diagram."""
    value, (low, high) = calibration_error(certainty, correct), calibration_interval(certainty, correct)
    extra = {**common["extra"], "bins": reliability(certainty, correct)}
    return Result(
        metric="expected_calibration_error", value=value, low=low, high=high, n=len(correct),
        interval="bootstrap 95%", flags=tuple(flags), **{**common, "extra": extra},
    )  # fmt: skip


# ---------------------------------------------------------------- curves


def robustness_area(columns: Columns, last: Result) -> Result:
    """The mean accuracy over all radii up to the largest, whose result is given: the area under the curve, scaled."""
    vector = area_under(columns)
    low, high = bootstrap(vector)
    return dataclasses.replace(
        last, metric="robustness_area", value=float(vector.mean()), low=low, high=high, interval="bootstrap 95%"
    )
