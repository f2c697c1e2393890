"""The verdict on a row: right, flagged, refused, SILENT or FALSE ALARM; and the table."""

import dataclasses

import pytest

from hardtack.evaluation.gauntlet.gauntlet import GauntletResult
from hardtack.evaluation.gauntlet.verdict import Row, counts


def row(number, *, truth=0.2, red=(), yellow=(), honest=False, evaluator="fast", mechanism="ripple"):
    return Row(
        mechanism=mechanism, family="shattered", evaluator=evaluator, truth=truth, clean=0.9, number=number,
        red=red, yellow=yellow, honest=honest, refused="" if number is not None else "NaN logits", n=100,
    )  # fmt: skip


@pytest.mark.parametrize(
    "number, red, yellow, honest, verdict",
    [
        (0.20, (), (), False, "right"),
        (0.21, (), (), False, "right"),  # one point above the truth
        (0.05, (), (), False, "right"),
        (0.22, (), (), False, "SILENT"),
        (0.22, (), ("flat_loss",), False, "SILENT"),  # a yellow flag is no warning that the number is wrong
        (0.22, ("masked_gradients",), (), False, "flagged"),
        (0.20, ("masked_gradients",), (), False, "right"),
        (None, (), (), False, "refused"),
        (0.20, (), (), True, "right"),
        (0.20, ("masked_gradients",), (), True, "FALSE ALARM"),
        (0.22, (), (), True, "SILENT"),
        (None, (), (), True, "FALSE ALARM"),
    ],
)
def test_the_verdict_on_a_row(number, red, yellow, honest, verdict):
    assert row(number, red=red, yellow=yellow, honest=honest).verdict == verdict


def test_a_row_survives_json():
    first = row(0.22, red=("masked_gradients",))
    assert Row.read(first.plain()) == first


def test_the_table_has_a_line_per_mechanism_and_a_column_per_evaluator():
    rows = (row(0.2), row(0.5, evaluator="exact"), row(0.9, mechanism="jpeg", red=("zero_gradient",)))
    result = GauntletResult(rows, ("ripple_robust: no robust model",))
    lines = str(result).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["ripple", "jpeg"]
    assert "50.0 % SILENT" in lines[1] and "90.0 % flagged (zero_gradient)" in lines[2] and "not run" in lines[2]
    assert lines[-1] == "left out: ripple_robust: no robust model"
    assert [silent.evaluator for silent in result.silent] == ["exact"]
    assert counts(rows)["fast"] == {"right": 1, "flagged": 1, "refused": 0, "failed": 0, "SILENT": 0, "FALSE ALARM": 0}
    assert result.markdown().splitlines()[1].startswith("|---|")


@pytest.mark.parametrize("honest", [False, True])
def test_an_evaluator_that_fails_is_neither_right_nor_raises_an_alarm(honest):
    failed = dataclasses.replace(row(None, honest=honest), refused="", failed="RuntimeError: no kernel")
    assert failed.verdict == "failed" and not GauntletResult((failed,)).silent
