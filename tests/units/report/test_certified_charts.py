"""Certified accuracy beside robust accuracy: curves from the radii of the images, the lowest upper bound, the card."""

import dataclasses

import numpy as np
import pytest

from hardtack.report.card import render_card
from hardtack.report.charts import sections
from hardtack.report.charts.certified import bounds_of, certified_charts
from hardtack.results import Result, append_results, leaderboard, read_run, wilson, write_verdicts

N = 40
radii_of_images = np.linspace(0, 0.95, N)
WORDS = {"n": N, "data": "digits/test", "checkpoint": "best", "weights_sha256": "a" * 64}


def certified(radius, *, sigma=0.25, created="2026-11-01T00:00:00", evaluation="smoothing-1", **fields):
    count = int((radii_of_images > radius).sum())
    low, high = wilson(count, N)
    return Result(
        metric="certified_accuracy", value=count / N, low=low, high=high, suite="smoothing", threat=f"l2:{radius:g}",
        attack=f"smoothing sigma={sigma} n=1000 alpha=0.001", evaluation=evaluation, created=created,
        attack_settings={"sigma": sigma, "selection_samples": 100, "samples": 1000, "alpha": 0.001},
        verdicts=f"verdicts/{evaluation}.parquet", extra={"abstained": 0.125}, **{**WORDS, **fields},
    )  # fmt: skip


def robust(threat, value, attack="apgd", **fields):
    return Result(
        metric="robust_accuracy", value=value, suite="pgd", threat=threat, attack=attack, evaluation=f"{attack}-1",
        **{**WORDS, **fields},
    )  # fmt: skip


def columns():
    label, index = np.zeros(N, dtype=int), np.arange(N)
    return {
        "index": index, "label": label, "prediction@smoothing": label, "radius@smoothing": radii_of_images,
        "abstained@smoothing": radii_of_images == 0,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path):
    def make(results, verdicts=True, name="x"):
        folder = tmp_path / name
        folder.mkdir()
        append_results(folder, results)
        if verdicts:
            write_verdicts(folder / "verdicts" / "smoothing-1.parquet", columns())
        return read_run(folder)

    return make


def smoothing(**fields):
    others = {"smoothed_accuracy": 0.9, "average_certified_radius": radii_of_images.mean()}
    result = certified(0.0, **fields)
    more = [dataclasses.replace(result, metric=name, value=value, threat=None) for name, value in others.items()]
    return [certified(radius, **fields) for radius in (0.0, 0.25, 0.5, 0.75)] + more


def test_the_curve_is_that_of_the_radii_and_the_dashed_one_the_lowest_robust_accuracy(run):
    given = run(
        [*smoothing(), robust("l2:0.5", 0.8), robust("l2:0.5", 0.7, "fab"), robust("l2:1", 0.2),
         robust("linf:0.1", 0.1), robust("l2:0.25", 0.1, weights_sha256="b" * 64), robust("l2:0.75", 0.1, n=39),
         robust("l2:0.125", 0.1, extra={"limits": "1 patch of 8×8"})]
    )  # fmt: skip
    (chart,) = certified_charts([given])
    lower, upper = chart["series"]
    assert not lower["dash"] and upper["dash"] and lower["name"] == "x: certified"
    for radius, share, low, high in lower["points"]:
        count = (radii_of_images > radius - 1e-6).sum(), (radii_of_images > radius + 1e-6).sum()
        assert count[1] / N <= share <= count[0] / N and low <= share <= high
    assert lower["points"][-1][:2] == [0.95, 0.0] and len(lower["points"]) > 100
    assert [point[:2] for point in upper["points"]] == [[0.5, 0.7], [1.0, 0.2]]
    (table,) = chart["numbers"]
    assert table["head"][1:] == ["ℓ₂ ≤ 0", "ℓ₂ ≤ 0.25", "ℓ₂ ≤ 0.5", "ℓ₂ ≤ 0.75", "ℓ₂ ≤ 1"]
    assert table["rows"][0][1:] == ["97.5%", "72.5%", "47.5%", "22.5%", "0.0%"]
    assert table["rows"][1][1:] == ["—", "—", "70.0%", "—", "20.0%"]
    assert (
        chart["sums"]["rows"][0]["cells"][0] == "90.0% (87.1–99.6%)" and chart["sums"]["rows"][0]["cells"][2] == "12.5%"
    )
    assert "another one" in chart["caption"] and "1,000 copies" in chart["caption"]


def test_without_verdicts_the_results_are_drawn_and_without_attacks_no_dashed_curve(run):
    (chart,) = certified_charts([run(smoothing(), verdicts=False)])
    (lower,) = chart["series"]
    assert [point[0] for point in lower["points"]] == [0, 0.25, 0.5, 0.75]
    assert "upper bound" not in chart["caption"]


def test_other_noise_and_other_images_have_charts_of_their_own_and_of_two_measurements_the_newest_counts(run):
    newer = [
        dataclasses.replace(result, value=0.5)
        for result in smoothing(created="2026-11-02T00:00:00", evaluation="smoothing-2")
    ]
    first = run([*smoothing(), *newer], name="a")
    second = run(
        [*smoothing(sigma=0.5, evaluation="smoothing-3"), *smoothing(n=39, evaluation="smoothing-4")], name="b"
    )
    third = run(smoothing(), name="c")
    groups = bounds_of([first, second, third])
    assert [[(b.subject.name, b.sigma, b.first.n) for b in group] for group in groups] == [
        [("a", 0.25, N), ("c", 0.25, N)], [("b", 0.5, N)], [("b", 0.25, 39)],
    ]  # fmt: skip
    assert groups[0][0].first.evaluation == "smoothing-2"
    assert [section["id"] for section in sections([first, second, third])] == ["certified"]


def test_the_card_has_both_bounds_and_tables_keep_them_apart(run):
    given = run([*smoothing(), robust("l2:0.5", 0.7)])
    card = render_card(given)
    assert "| x: certified | 97.5% | 72.5% | 47.5% | 22.5% |" in card
    assert "lower bound, for the model smoothed by Gaussian noise of deviation 0.25" in card
    assert {table.metric for table in leaderboard([given])} == {"robust_accuracy", "certified_accuracy"}
    assert "lower bound" not in render_card(run([robust("l2:0.5", 0.7)], name="y"))
