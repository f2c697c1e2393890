"""Only results that were measured in the same way share a table."""

from pathlib import Path

import pytest

from hardtack.base.errors import UserError
from hardtack.results import Result, Run, curves, leaderboard, parse_threat, read_run, read_runs


def measured(value, *, metric="robust_accuracy", threat="linf:8/255", evaluation="e", created="2026-01-01", **changes):
    values = {
        "suite": "pgd",
        "data": "digits/test",
        "n": 100,
        "checkpoint": "best",
        "attack_settings": {"steps": 20},
    }
    if metric == "clean_accuracy":
        threat, values["attack_settings"] = None, {}
    values |= {
        "metric": metric,
        "value": value,
        "threat": threat,
        "evaluation": evaluation,
        "created": created,
    }
    return Result(**{**values, **changes})


def run(label, *results):
    return Run(path=Path(label), label=label, results=list(results))


def clean(value, **changes):
    return measured(value, metric="clean_accuracy", **changes)


def test_rows_are_sorted_by_robust_accuracy_with_clean_beside():
    (table,) = leaderboard([run("a", clean(0.9), measured(0.3)), run("b", clean(0.8), measured(0.5)), run("c")])
    assert [(row.run, row.clean.value, row.cells["linf:8/255"].value) for row in table.rows] == [
        ("b", 0.8, 0.5),
        ("a", 0.9, 0.3),
    ]


def test_equal_numbers_are_sorted_by_clean_accuracy():
    runs = [run("a", clean(0.7), measured(0.5)), run("b", clean(0.9), measured(0.5)), run("c", measured(0.5))]
    (table,) = leaderboard(runs)
    assert [row.run for row in table.rows] == ["b", "a", "c"]


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 50},
        {"attack_settings": {"steps": 10}},
        {"data": "digits/train"},
        {"extra": {"source": "official"}},
    ],
)
def test_results_made_differently_get_separate_tables(changes):
    tables = leaderboard([run("a", measured(0.3)), run("b", measured(0.5, **changes))])
    assert [[row.run for row in table.rows] for table in tables] in ([["a"], ["b"]], [["b"], ["a"]])


def test_threats_are_columns_and_a_gap_ranks_last():
    runs = [
        run("a", measured(0.3), measured(0.2, threat="l2:0.5")),
        run("b", measured(0.9, threat="l2:0.5")),
        run("c", measured(0.1), measured(0.1, threat="l2:0.5")),
        run("d", measured(0.4)),
    ]
    (table,) = leaderboard(runs)
    assert table.threats == ["l2:0.5", "linf:8/255"]
    assert [row.run for row in table.rows] == ["b", "a", "c", "d"]


def test_the_newest_of_repeated_results_wins_whatever_their_order():
    old, new = (
        measured(0.9, evaluation="e1", created="2026-01-01"),
        measured(0.4, evaluation="e2", created="2026-02-01"),
    )
    for results in ([old, new], [new, old]):
        (table,) = leaderboard([run("a", *results)])
        assert table.rows[0].cells["linf:8/255"].value == 0.4


def test_clean_accuracy_comes_from_the_same_checkpoint_and_images():
    results = [clean(0.99, checkpoint="last"), clean(0.98, n=7), measured(0.3)]
    attacked, *others = leaderboard([run("a", *results)])
    assert attacked.rows[0].clean is None
    assert {table.rows[0].cells[None].value for table in others} == {0.99, 0.98}


def test_runs_without_an_attack_have_a_clean_table():
    (table,) = leaderboard([run("a", clean(0.9, suite="clean")), run("b", clean(0.95, suite="clean"))])
    assert (table.metric, [row.run for row in table.rows]) == ("clean_accuracy", ["b", "a"])


def test_flags_of_a_row_are_distinct_and_red_first():
    yellow, red = (
        {"level": "yellow", "code": "a", "message": "m"},
        {"level": "red", "code": "b", "message": "m"},
    )
    (table,) = leaderboard([run("a", clean(0.9, flags=(yellow,)), measured(0.3, flags=(yellow, red)))])
    assert [flag["level"] for flag in table.rows[0].flags] == ["red", "yellow"]


def sweep(*values, steps=20):
    made = {"suite": "sweep", "evaluation": "s"}
    settings = [{"steps": steps, "step_size": i} for i in range(len(values))]
    return [
        measured(value, threat=f"linf:{2 * i + 2}/255", attack_settings=settings[i], **made)
        for i, value in enumerate(values)
    ]


def test_curves_ascend_from_the_clean_accuracy_and_share_a_chart_despite_step_sizes():
    (found,) = curves([run("a", *reversed(sweep(0.5, 0.2)), clean(0.9)), run("b", *sweep(0.4, 0.1))])
    assert [[point.result.value for point in curve.points] for curve in found.curves] == [
        [0.9, 0.5, 0.2],
        [0.4, 0.1],
    ]
    assert [point.eps for point in found.curves[0].points] == pytest.approx([0, 2 / 255, 4 / 255])
    assert leaderboard([run("b", *sweep(0.4, 0.1))]) == []


def test_sweeps_of_different_strength_do_not_share_a_chart():
    assert len(curves([run("a", *sweep(0.5, 0.2)), run("b", *sweep(0.5, 0.2, steps=5))])) == 2


def test_threats_read_as_text():
    assert parse_threat("linf:8/255") == ("linf", pytest.approx(8 / 255))
    for wrong in ("linf", "linf:x", "linf:1/0"):
        with pytest.raises(UserError, match="norm:eps"):
            parse_threat(wrong)


def test_runs_with_equal_names_get_different_labels(tmp_path):
    for parent in ("one", "two"):
        (tmp_path / parent / "x").mkdir(parents=True)
        (tmp_path / parent / "x" / "config.yaml").write_text("name: x")
    assert [item.label for item in read_runs(tmp_path)] == ["one/x", "two/x"]
    with pytest.raises(UserError, match="2 runs"):
        read_run(tmp_path)


def test_a_setting_may_be_called_on(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("objective: {name: rspc, on: both}\n")
    assert read_run(tmp_path / "run").config["objective"] == {"name": "rspc", "on": "both"}
