"""Reductions of an analysis's array to one number per image."""

from pathlib import Path

import numpy as np
import pytest

from hardtack.results import Finding
from hardtack.studies.analysed import _REDUCED, _reduced
from hardtack.studies.column import REDUCTIONS, read_column
from hardtack.studies.unit import Unit

VALUES = np.array([[1.0, 10.0, 4.0], [3.0, 10.0, 2.0]])  # two images, three layers


def test_every_reduction_has_a_name_and_a_rule():
    assert {*_REDUCED, "spread"} == set(REDUCTIONS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("first", [1, 3]), ("last", [4, 2]), ("middle", [10, 10]), ("mean", [5, 5]), ("max", [10, 10])],
)
def test_reductions_over_layers(name, expected):
    np.testing.assert_allclose(_REDUCED[name](VALUES), expected)


def test_deviation_is_the_distance_from_the_mean_over_images():
    np.testing.assert_allclose(_REDUCED["deviation"](VALUES), [(1 + 0 + 1) / 3] * 2)
    np.testing.assert_allclose(_REDUCED["deviation"](np.tile(VALUES[:1], (5, 1))), np.zeros(5))


def test_spread_is_over_images_and_layers_together_and_has_no_values_per_image():
    unit = Unit(study="s", scale="smoke", row="r", training="t", seed=0, settings={})
    column = read_column("spread", {"analysis": "jacobian", "array": "sigma", "reduce": "spread"}, ["t"])
    finding = Finding(id="f", analysis="jacobian", settings={}, about={}, facts={}, notes=(), arrays={"sigma": VALUES})
    measured = _reduced(unit, Path("run"), column, finding)
    assert measured.value == pytest.approx(VALUES.std())
    assert measured.vector is None
