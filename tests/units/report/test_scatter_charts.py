"""One number of every run against another: known correlations, and a table behind the dots."""

import pytest

from hardtack.report.kinds.scatter import correlation, scatter_chart, scatter_view


def test_correlations_are_those_of_ranks_and_values():
    x = [1, 2, 3, 4, 5]
    assert correlation(x, [1, 10, 100, 1000, 10000]) == (pytest.approx(1), pytest.approx(0.7597, abs=1e-3))
    assert correlation(x, x[::-1]) == pytest.approx((-1, -1))
    ranks, _ = correlation([1, 1, 2, 3, 4], x)  # equal values share their rank
    assert ranks == pytest.approx(0.9747, abs=1e-3)
    assert correlation(x[:4], x[:4]) is None and correlation([1] * 5, x) is None


def test_a_chart_says_how_the_two_go_together():
    points = [
        {"run": i, "name": f"run {i}", "x": 0.1 * i, "y": 0.9 - 0.1 * i, "low": 0.1, "high": 0.9} for i in range(5)
    ]
    view = scatter_view("all", points, x="sparsity", y="accuracy", x_kind="percent", y_kind="percent")
    chart = scatter_chart(id="a-b", file="digits", title="t", caption="digits", views=[view])
    assert chart["views"][0]["caption"] == "digits · over 5 runs: Spearman's ρ −1.00, Pearson's r −1.00"
    assert chart["numbers"][0]["rows"][1] == ["run 1", "10.0%", "80.0%"]
    assert [one["run"] for one in chart["views"][0]["series"]] == [0, 1, 2, 3, 4]
    few = scatter_view("all", points[:3], x="sparsity", y="accuracy")
    chart = scatter_chart(id="a-b", file="digits", title="t", caption="digits", views=[few])
    assert chart["views"][0]["caption"] == "digits · 3 runs are too few for a correlation"
