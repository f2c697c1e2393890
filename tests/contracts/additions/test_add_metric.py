"""A metric of the user's own is one entry: its title, its unit, its direction and its place are used everywhere."""

import numpy as np
import pytest

from hardtack.base.registry import metrics
from hardtack.report.wording import metric_name, number
from hardtack.results import Result, Run, find_metric, is_share, leaderboard, lower_is_better, per_image


@pytest.fixture
def stumbles():
    @metrics.register("stumbles", title="Stumbles", percent=False, lower_is_better=True, order=0)
    def count(result, columns):
        return columns[f"stumbles@{result.attack}"]

    yield "stumbles"
    metrics._entries.pop("stumbles", None)


def result(metric, value, run="a"):
    return Result(
        metric=metric, value=value, n=3, suite="walk", data="d/test", evaluation="walk-1", attack="ice", run=run
    )


def run(name, *results):
    return Run(path=name, label=name, config={}, results=list(results), metrics=[], galleries=[], findings=[])


def test_it_is_named_printed_and_ordered(stumbles, tmp_path):
    assert metric_name(stumbles) == "Stumbles" and number(2.5, stumbles) == "2.5"
    assert not is_share(stumbles) and lower_is_better(stumbles)
    runs = [run(name, result(stumbles, value), result("robust_accuracy", 0.5)) for name, value in (("a", 3), ("b", 1))]
    tables = leaderboard(runs)
    assert [table.metric for table in tables] == [stumbles, "robust_accuracy"], "order=0 comes before robust accuracy"
    assert [row.run for row in tables[0].rows] == ["b", "a"], "fewer stumbles are better"


def test_it_says_what_it_is_the_mean_of(stumbles):
    columns = {"stumbles@ice": np.array([1, 2, 3])}
    assert per_image(result(stumbles, 2), columns).tolist() == [1, 2, 3]
    assert per_image(result(stumbles, 2), {}) is None, "verdicts that lack the column"


def test_a_metric_that_is_not_registered_is_described_by_its_name():
    metric = find_metric("sideways_error")
    assert metric.title == "Sideways error" and metric.percent and metric.lower_is_better and metric.order is None
    assert per_image(result("sideways_error", 0.1), {}) is None


def test_every_metric_of_the_house_is_described():
    for name in metrics.names():
        metric = find_metric(name)
        assert metric.title and metric.per_image is not None and metrics.get(name).help
