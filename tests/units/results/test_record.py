"""A Result survives its own JSON; intervals and paired tests match known values."""

import json

import numpy as np
import pytest

from hardtack.base.errors import UserError
from hardtack.results import Result, comparable, from_json, paired, parse_threat, to_json, wilson
from hardtack.results.intervals import bootstrap, resamples


def result(**changes):
    values = {
        "metric": "robust_accuracy",
        "value": 0.41,
        "n": 1000,
        "suite": "pgd",
        "data": "digits/test",
        "evaluation": "e1",
        "threat": "linf:8/255",
        "attack_settings": {"steps": 20},
    }
    return Result(**{**values, **changes})


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [  # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I, method 3
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (20, 20, (0.8389, 1.0)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_matches_published_values(successes, n, expected):
    assert wilson(successes, n) == pytest.approx(expected, abs=5.1e-5)


def test_wilson_is_symmetric_and_narrows_with_confidence_and_n():
    low, high = wilson(30, 100)
    assert wilson(70, 100) == pytest.approx((1 - high, 1 - low))
    assert np.diff(wilson(30, 100, 0.9)) < high - low < np.diff(wilson(30, 100, 0.99))
    assert np.diff(wilson(300, 1000)) < high - low


@pytest.mark.parametrize("arguments", [(1, 0), (-1, 5), (6, 5), (1, 5, 1.0)])
def test_wilson_refuses_the_impossible(arguments):
    with pytest.raises(UserError):
        wilson(*arguments)


def test_paired_is_the_exact_binomial():
    first = np.array([1] * 9 + [0] * 1 + [1] * 90, dtype=bool)
    second = np.array([0] * 9 + [1] * 1 + [1] * 90, dtype=bool)
    test = paired(first, second)
    assert (test.only_first, test.only_second, test.difference) == (9, 1, pytest.approx(0.08))
    assert test.p_value == pytest.approx(2 * (1 + 10) / 2**10)
    assert paired(first, first).p_value == 1.0
    assert paired(np.ones(5000, bool), np.zeros(5000, bool)).p_value == pytest.approx(0.0)
    with pytest.raises(UserError):
        paired(first, second[:5])


def test_json_round_trip_is_exact():
    before = result(
        low=0.1 + 0.2,
        high=1 / 3,
        attack_settings={
            "steps": np.int64(20),
            "eps": np.float32(0.1),
            "losses": ("ce", "dlr"),
            "eta": float("inf"),
        },
        flags=("loss never rises", {"level": "red", "code": "zero-gradient", "message": "…"}),
        versions={"torch": "2.11"},
        extra={"curve": np.arange(3)},
        seconds=1.5,
    )
    after = from_json(to_json(before))
    assert after == before
    assert before.flags[0] == {"level": "yellow", "code": "note", "message": "loss never rises"}
    assert before.extra == {"curve": [0, 1, 2]}


def test_fields_of_a_newer_version_are_kept():
    line = json.dumps({**json.loads(to_json(result())), "carbon_g": 3})
    assert from_json(line).extra == {"carbon_g": 3}


def test_impossible_records_are_refused():
    for changes in ({"value": float("nan")}, {"flags": ({"level": "purple"},)}):
        with pytest.raises(UserError):
            result(**changes)
    with pytest.raises(UserError, match="metric"):
        from_json('{"value": 1}')


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "clean_accuracy"},
        {"suite": "sweep"},
        {"threat": "l2:0.5"},
        {"data": "cifar10/test"},
        {"n": 999},
        {"attack_settings": {"steps": 10}},
        {"protocol": "tier=verified"},
        {"extra": {"source": "official"}},
    ],
)
def test_results_made_differently_are_not_comparable(changes):
    assert comparable(result()) != comparable(result(**changes))


def test_run_and_time_do_not_matter_for_comparison():
    other = result(run="b", seed=3, created="2026-01-01", value=0.2, attack_settings={"steps": 20, "seed": 1})
    assert comparable(result()) == comparable(other)


@pytest.mark.parametrize("n", [1, 7, 360, 5000, 20_000])
def test_the_bootstrap_has_the_draws_and_means_of_version_0_1_0_to_the_bit(n):
    """Stored intervals are compared with these; they were computed one draw after the other."""
    noise = np.random.default_rng(n)
    for per_image in (noise.random(n), noise.random(n).astype(np.float32), noise.random(n) < 0.3):
        means = [per_image[rows].mean() for rows in resamples(n)]
        tail = (1 - 0.95) / 2
        assert bootstrap(per_image) == (float(np.quantile(means, tail)), float(np.quantile(means, 1 - tail)))


def test_a_threat_of_a_billion_digits_is_refused():
    assert parse_threat("l2:1e-3") == ("l2", 0.001)
    with pytest.raises(UserError, match="not of the form"):
        parse_threat("linf:1e999999999")


def test_the_bootstrap_of_many_images_is_the_normal_interval_of_their_mean():
    per_image = np.random.default_rng(1).normal(3, 2, 4000)
    low, high = bootstrap(per_image)
    assert (high - low) / 2 == pytest.approx(1.96 * per_image.std() / 4000**0.5, rel=0.08)
    assert low < per_image.mean() < high and (low, high) == bootstrap(per_image), "always the same draws"
