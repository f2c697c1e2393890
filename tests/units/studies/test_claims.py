"""Verdicts on claims: closed forms, and simulated studies whose truth is known."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import stdtr

from hardtack.results.intervals import bootstrap
from hardtack.studies import claim_sample, claim_statistics, claims
from hardtack.studies.behrens_fisher import half_width, two_sided_p
from hardtack.studies.cells import Measured
from hardtack.studies.claims import holm, judge, parse_claim

ROWS, COLUMNS = "abcdefghij", ("acc", "other", "norm")
UNITS = {"norm": "number"}


def cell(*vectors, seeds=None):
    seeds = seeds or range(len(vectors))
    return tuple(
        Measured(seed=seed, value=float(np.mean(v)), n=len(v), index=np.arange(len(v)), vector=np.asarray(v, float))
        for seed, v in zip(seeds, vectors, strict=True)
    )


def numbers(*values):
    return tuple(Measured(seed=seed, value=float(value)) for seed, value in enumerate(values))


def share(correct, n):
    return 100.0 * (np.arange(n) < correct)


def verdicts(texts, cells, **settings):
    groups = {"late": ["c", "d"]}
    parsed = [parse_claim(text, rows=ROWS, columns=COLUMNS, groups=groups) for text in texts]
    return judge(parsed, cells, units=UNITS, **settings)


def verdict(text, cells, **settings):
    return verdicts([text], cells, **settings)[0]


# ---------------------------------------------------------------- closed forms


def test_two_models_on_the_same_images_are_compared_by_mcnemar():
    both, only_a, only_b = np.zeros(100), np.arange(100) < 10, (np.arange(100) >= 10) & (np.arange(100) < 12)
    cells = {("a", "acc"): cell(both + 100 * only_a), ("b", "acc"): cell(both + 100 * only_b)}
    result = verdict("acc(a) > acc(b)", cells)
    assert result.p == result.adjusted == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert (result.effect, result.n, result.seeds, result.verdict) == (8.0, 100, 1, "reproduced")
    assert (result.low, result.high) == bootstrap(100.0 * only_a - 100.0 * only_b)  # as `hardtack compare` prints it
    opposite = verdict("acc(a) < acc(b)", cells)
    assert opposite.verdict == "refuted" and opposite.p == result.p and opposite.effect == 8.0
    assert verdict("2*acc(a) > 2*acc(b)", cells).p == result.p
    fractions = {key: cell(measured[0].vector / 100) for key, measured in cells.items()}
    claim = parse_claim("acc(a) > acc(b)", rows=ROWS, columns=COLUMNS)
    assert judge([claim], fractions, units={"acc": "fraction"})[0].p == result.p


def test_the_sentence_tells_what_was_tested_and_on_what():
    cells = {("a", "acc"): cell(share(60, 100)), ("b", "acc"): cell(share(50, 100))}
    titles = {"acc": "worst case", "a": "CCTT", "b": "CCCC"}
    first, below, missing = verdicts(["acc(a) > acc(b)", "acc(a) < 61", "acc(c) > acc(a)"], cells, titles=titles)
    assert first.sentence == (
        "worst case of CCTT minus worst case of CCCC: +10.0 points [5.0, 16.0], paired over 100 images, "
        "1 seed (McNemar's exact test; other trainings may differ), p = 0.002, 0.0039 after Holm over 2 claims: "
        "reproduced"
    )
    assert below.sentence.startswith(
        "worst case of CCTT: 60.0 % [50.2, 69.1], claimed below 61, over 100 images, 1 seed"
    )
    assert missing.sentence == "worst case of c minus worst case of CCTT: not measured: no value for worst case of c"
    assert (missing.verdict, missing.p, missing.reason) == ("not measured", None, "no value for worst case of c")


def test_a_value_of_several_seeds_without_images_is_a_t_test():
    result = verdict("norm(a) > 0", {("a", "norm"): numbers(1, 2, 3)})
    t = 2 / np.sqrt(1 / 3)
    assert result.p == pytest.approx(2 * stdtr(2, -t), rel=1e-4) and result.verdict == "undecided"
    assert result.high - result.effect == pytest.approx(4.302653 / np.sqrt(3), rel=1e-4)
    assert "3 seeds (t over seeds alone), p = 0.074" in result.sentence


def test_seeds_are_paired_by_their_number():
    values = np.array([10.0, 30.0, 20.0, 40.0])
    cells = {
        ("a", "norm"): tuple(Measured(seed=s, value=v + 1 + 0.01 * s) for s, v in enumerate(values)),
        ("b", "norm"): tuple(Measured(seed=s, value=values[s]) for s in (3, 1, 0)),
    }
    result = verdict("norm(a) > norm(b)", cells)
    assert result.seeds == 3 and result.effect == pytest.approx(1 + 0.04 / 3) and result.verdict == "reproduced"


def test_a_share_against_a_number_is_an_exact_binomial_test():
    none = {("a", "acc"): cell(np.zeros(100))}
    result = verdict("acc(a) < 1", none)
    assert result.p == pytest.approx(2 * 0.99**100) and result.verdict == "undecided"  # all signs alike prove nothing
    assert verdict("acc(a) < 1", {("a", "acc"): cell(np.zeros(1000))}).verdict == "reproduced"
    assert verdict("acc(a) > 60", {("a", "acc"): cell(share(40, 100))}).verdict == "refuted"


def test_an_even_sum_of_one_seed_is_tested_by_random_signs():
    values = np.linspace(-1, 1.4, 12)
    cells = {(row, "norm"): cell(k * values) for k, row in enumerate("abcd", start=1)}
    signs = np.array(np.meshgrid(*[[-1, 1]] * 12)).reshape(12, -1)
    exact = np.mean(np.abs(values @ signs) >= abs(values.sum()) - 1e-9)
    for text in ("norm(b) > norm(a)", "mean(norm, [a, c]) < mean(norm, [b, d])", "trend(norm, [a, b, c, d]) > 0"):
        result = verdict(text, cells)
        assert result.test == "sign-flip test" and result.p == pytest.approx(exact, abs=0.01)
    for text in ("norm(b) > 3*norm(a)", "norm(a) > mean(norm, [b, c])", "norm(b) > 0", "norm(b) - norm(a) > 0.1"):
        assert verdict(text, cells).test == "t over images"


def test_trends_and_groups_are_linear():
    cells = {(row, "norm"): numbers(*(k * 2.0 + np.array([0.0, 0.1, 0.2, 0.3]) * k)) for k, row in enumerate("abcd")}
    assert verdict("trend(norm, [a, b, c, d]) > 0", cells).effect == pytest.approx(2.15)
    assert verdict("mean(norm, late) > norm(a)", cells).effect == pytest.approx(2.5 * 2.15)


def test_columns_without_any_error_are_compared_as_they_are():
    cells = {("a", "norm"): numbers(1.7), ("b", "norm"): numbers(2.3), ("a", "acc"): cell(share(9, 10))}
    cells |= {("b", "acc"): cell(share(1, 10))}
    texts = ["norm(a) < norm(b)", "norm(a) > norm(b)", "norm(a) < norm(b) - 0.6", "acc(a) > acc(b)"]
    results = verdicts(texts, cells, exact=["norm"])
    assert [result.verdict for result in results[:2]] == ["reproduced", "refuted"]
    assert "which follows from the settings and needs no test: reproduced" in results[0].sentence
    assert results[3].p == results[3].adjusted and "Holm" not in results[3].sentence, "they are no tests to correct for"
    assert verdict("norm(a) < norm(b)", cells).verdict == "undecided", "a norm of weights depends on the training"
    mixed = verdict("norm(a) < acc(b)", cells, exact=["norm"])
    assert mixed.verdict == "undecided"


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.9, 0.6]) == [1.0, 1.0] and holm([]) == []


def test_claims_that_were_not_tested_do_not_count_in_holm():
    cells = {("a", "acc"): cell(share(60, 100)), ("b", "acc"): cell(share(50, 100)), ("a", "norm"): numbers(3)}
    results = verdicts(["acc(a) > acc(b)", "norm(a) > 1", "acc(a) > acc(c)"], cells)
    assert results[0].adjusted == results[0].p and "Holm" not in results[0].sentence
    assert [result.verdict for result in results] == ["reproduced", "undecided", "not measured"]
    assert "as claimed, but not tested: one training and no value per image" in results[1].sentence


@pytest.mark.parametrize(
    "text, cells, reason",
    [
        ("acc(a) > acc(b)", {("a", "acc"): cell(share(9, 10)), ("b", "acc"): cell(share(1, 11))}, "different images"),
        ("acc(a) > acc(b)", {("a", "acc"): cell(share(9, 10)), ("b", "acc"): numbers(3)}, "no value per image"),
        ("acc(a) > acc(b)",
         {("a", "acc"): cell(share(9, 10), seeds=[1]), ("b", "acc"): cell(share(1, 10))}, "no seed in common"),
        ("norm(a) > norm(b)", {("a", "norm"): numbers(3, 3), ("b", "norm"): numbers(0.1, 0.1)}, "the same value"),
        ("norm(a) > 0", {("a", "norm"): numbers(3, np.nan)}, "not a finite number"),
        ("acc(a) > 10", {("a", "acc"): cell([100.0])}, "one image"),
    ],
)  # fmt: skip
def test_what_cannot_be_tested_is_undecided_with_the_reason(text, cells, reason):
    result = verdict(text, cells)
    assert result.verdict == "undecided" and result.p is None and reason in result.reason
    assert reason in result.sentence


def test_a_conjunction_needs_all_parts_and_reports_the_weakest():
    cells = {(row, "acc"): cell(share(k, 200)) for row, k in zip("abcd", (100, 60, 92, 150), strict=True)}
    strong, weak = verdict("acc(a) > acc(b)", cells), verdict("acc(a) > acc(c)", cells)
    both = verdict("acc(a) > acc(b, c)", cells)
    assert both.verdict == "reproduced" and both.p == weak.p > strong.p and both.effect == weak.effect == 4.0
    assert "weakest of 2 comparisons: acc of a minus acc of c" in both.sentence
    refuted = verdict("acc(a) > acc(b, c, d)", cells)
    assert refuted.verdict == "refuted" and refuted.effect == -25.0
    assert refuted.p == pytest.approx(3 * verdict("acc(a) > acc(d)", cells).p)  # any of three could have refuted it
    near = {**cells, ("e", "acc"): cell(share(99, 200))}
    assert verdict("acc(a) > acc(b, e)", near).verdict == "undecided"
    unknown = {**cells, ("e", "acc"): numbers(20)}
    assert verdict("acc(a) > acc(b, e)", unknown).verdict == "undecided"
    assert verdict("acc(a) > acc(d, e)", unknown).verdict == "refuted"


def test_equal_within_a_margin():
    def pair(n, differ=0):
        return {("a", "acc"): cell(share(n // 2 + differ, n)), ("b", "acc"): cell(share(n // 2, n))}

    few = verdict("abs(acc(a) - acc(b)) < 1", pair(20))
    assert few.verdict == "undecided" and few.effect == 0 and few.high > 1  # 20 images that agree are no evidence
    many = verdict("abs(acc(a) - acc(b)) < 1", pair(2000))
    assert many.verdict == "reproduced" and -1 < many.low < many.high < 1
    assert "90 % interval" in many.sentence and "claimed within ±1" in many.sentence
    assert verdict("abs(acc(a) - acc(b)) < 1", pair(1000, differ=50)).verdict == "refuted"
    assert verdict("abs(acc(a) - acc(b)) < 5", pair(1000, differ=50)).verdict == "undecided"
    assert verdict("abs(acc(a) - acc(b) - 5) < 4", pair(1000, differ=50)).verdict == "reproduced"


def test_the_interval_of_a_margin_agrees_with_its_two_tests():
    cells = {("a", "norm"): cell(np.linspace(-1, 1.4, 40)), ("b", "norm"): cell(np.zeros(40))}
    high = verdict("abs(norm(a) - norm(b)) < 9", cells).high
    assert verdict(f"abs(norm(a) - norm(b)) < {high}", cells).p == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("order, p", [("12345", 2 / 120), ("21345", 10 / 120), ("54321", 2 / 120)])
def test_rank_correlation_by_all_permutations(order, p):
    cells = {(row, "acc"): cell(share(10 * k, 100)) for k, row in enumerate("abcde")}
    cells |= {(row, "norm"): numbers(float(k) ** 3, float(k) ** 3) for k, row in zip(order, "abcde", strict=True)}
    result = verdict("spearman(acc, norm) > 0", cells)
    assert result.p == pytest.approx(p) and result.rows == 5 and -1 < result.low < result.high < 1
    assert result.effect == pytest.approx({"12345": 1.0, "21345": 0.9, "54321": -1.0}[order])
    assert result.verdict == {"12345": "reproduced", "21345": "undecided", "54321": "refuted"}[order]
    assert "over 5 rows" in result.sentence and "rows and not images as the sample" in result.sentence


def test_rank_correlation_over_many_or_few_rows():
    cells = {(row, "acc"): numbers(k // 2) for k, row in enumerate(ROWS)} | {
        (row, "norm"): numbers(k) for k, row in enumerate(ROWS)
    }
    many = verdict("spearman(acc, norm) > 0", cells)
    assert many.effect == pytest.approx(0.984732, abs=1e-6)  # five pairs of equal values
    assert many.p == 1 / 20_001 and many.test == "permutation test"
    assert verdict("spearman(acc, norm) > 0.5", cells).verdict == "reproduced"
    assert verdict("spearman(acc, norm) < 0.5", cells).verdict == "refuted"
    three = {key: measured for key, measured in cells.items() if key[0] in "abc"}
    assert verdict("spearman(acc, norm) > 0", three).reason == "3 rows; a rank correlation needs at least 4"
    assert verdict("spearman(acc, norm, [a, b, c, d]) > 0", three).verdict == "not measured"
    assert verdict("spearman(acc, other) > 0", cells).verdict == "not measured"
    flat = cells | {(row, "acc"): numbers(1) for row in ROWS}
    assert "all rows have the same value" in verdict("spearman(acc, norm) > 0", flat).reason


def test_the_order_of_the_cells_changes_nothing():
    rng = np.random.default_rng(3)
    cells = {(row, "acc"): cell(*(100.0 * (rng.random((2, 50)) < 0.5))) for row in "dacb"}
    one_seed = {("a", "other"): cell(rng.random(50)), ("b", "other"): cell(rng.random(50))}
    texts = ["acc(a) > acc(b)", "mean(acc, late) > acc(a)", "spearman(acc, norm) > 0", "other(a) > other(b)"]
    cells |= {(row, "norm"): numbers(k) for k, row in enumerate("abcd")} | one_seed
    assert verdicts(texts, cells) == verdicts(texts, dict(reversed(cells.items())))


def test_claims_need_neither_torch_nor_scipy_stats():
    code = "import sys, hardtack.studies.claims; assert not {'torch', 'scipy.stats'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- simulated studies


@pytest.fixture
def quick(monkeypatch):
    """Fewer random signs, and no bootstrap: the simulations look at verdicts only."""
    monkeypatch.setattr(claim_statistics, "_FLIPS", 500)
    monkeypatch.setattr(claim_statistics, "bootstrap", lambda values, confidence: (0.0, 0.0))


def study(rng, shifts, *, n=100, seeds=1, seed_sd=0.0, image_sd=1.0, noise=1.0, column="acc"):
    """Rows that are right if an image is easy enough: easiness is the image's, shared by all rows and seeds."""
    easiness = image_sd * rng.standard_normal(n)
    cells = {}
    for row, shift in shifts.items():
        training = shift + seed_sd * rng.standard_normal((seeds, 1))
        cells[row, column] = cell(*(100.0 * (easiness + training + noise * rng.standard_normal((seeds, n)) > 0)))
    return cells


def rate(texts, studies, *, wrong=("reproduced", "refuted")):
    """The share of studies with one or more of these verdicts."""
    return np.mean([any(result.verdict in wrong for result in verdicts(texts, cells)) for cells in studies])


BOUND = 0.05 + 3 * np.sqrt(0.05 * 0.95 / 250)  # 5 %, and three standard errors of 250 studies
PAIRS = [f"acc({first}) > acc({second})" for first, second in ("ab", "cd", "ef", "gh", "ij")]
NULL = [*PAIRS, "mean(acc, [a, b]) > mean(acc, [c, d, e])", "acc(a) > 50", "acc(f) - acc(g) < 0.001"]


def test_no_effect_rarely_gives_a_verdict_and_without_holm_it_would(quick, monkeypatch):
    rng = np.random.default_rng(0)
    studies = [study(rng, dict.fromkeys(ROWS, 0.0)) for _ in range(250)]
    assert rate(NULL, studies) <= BOUND
    monkeypatch.setattr(claims, "holm", list)
    assert rate(NULL, studies) > 2 * BOUND


def test_seeds_that_differ_more_than_images_give_no_false_certainty(quick):
    rng = np.random.default_rng(1)
    studies = [study(rng, dict.fromkeys("abcd", 0.0), seeds=3, seed_sd=0.4) for _ in range(250)]
    assert rate(PAIRS[:2], studies) <= BOUND
    pooled = [
        {key: cell(np.concatenate([measured.vector for measured in trained])) for key, trained in cells.items()}
        for cells in studies
    ]
    assert rate(PAIRS[:2], pooled) > 4 * BOUND
    assert rate(PAIRS[:2], [{key: trained[:1] for key, trained in cells.items()} for cells in studies]) > 4 * BOUND


def test_an_uneven_sum_is_not_tested_by_random_signs(quick, monkeypatch):
    """Images where only `a` is wrong count three times those where only `b` is: few of them may all be of one kind."""
    rng = np.random.default_rng(7)
    studies = [study(rng, dict.fromkeys("abcd", 1.0), n=32, noise=0.1) for _ in range(250)]
    assert rate(["acc(a) > mean(acc, [b, c, d])"], studies) <= BOUND
    monkeypatch.setattr(claim_sample, "_exchangeable", lambda coefficients: True)
    assert rate(["acc(a) > mean(acc, [b, c, d])"], studies) > 1.5 * BOUND


def test_seeds_share_their_images(quick):
    """Against a number, or for rows that differ by image, more seeds do not replace images."""
    rng = np.random.default_rng(2)
    studies = [study(rng, {"a": 0.0}, seeds=5, noise=0.1) for _ in range(250)]
    assert rate(["acc(a) > 50"], studies) <= BOUND
    alone = [{key: numbers(*(measured.value for measured in trained)) for key, trained in c.items()} for c in studies]
    assert rate(["acc(a) > 50"], alone) > 4 * BOUND


@pytest.mark.parametrize("settings", [{"n": 300}, {"n": 300, "seeds": 3, "seed_sd": 0.05}], ids=["one", "three"])
def test_true_effects_are_found_and_reversed_ones_refuted(quick, settings):
    rng = np.random.default_rng(3)
    studies = [study(rng, {"a": 1.0, "b": 0.0, "c": 0.0}, **settings) for _ in range(40)]
    for true, reversed_ in (
        ("acc(a) > acc(b, c)", "acc(a) < acc(b, c)"),
        ("acc(a) > 3 + mean(acc, [b, c])", "3 + mean(acc, [b, c]) > acc(a)"),
        ("trend(acc, [b, c, a]) > 0", "trend(acc, [b, c, a]) < 0"),
    ):
        assert rate([true], studies, wrong=("reproduced",)) >= 0.9
        assert rate([reversed_], studies, wrong=("refuted",)) >= 0.9
        assert rate([true], studies, wrong=("refuted",)) == rate([reversed_], studies, wrong=("reproduced",)) == 0


def test_pairing_finds_what_separate_images_hide(quick):
    rng = np.random.default_rng(4)
    studies = [study(rng, {"a": 0.15, "b": 0.0}, n=400, noise=0.1) for _ in range(60)]
    assert rate(["acc(a) > acc(b)"], studies, wrong=("reproduced",)) >= 0.9
    shuffled = [{**cells, ("b", "acc"): cell(rng.permutation(cells["b", "acc"][0].vector))} for cells in studies]
    assert rate(["acc(a) > acc(b)"], shuffled, wrong=("reproduced",)) < 0.6


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_difference_as_large_as_the_margin_is_rarely_called_equal(quick, seeds):
    rng = np.random.default_rng(5)
    studies = []
    for _ in range(250):
        right = rng.random((2, seeds, 200)) < np.array([0.6, 0.5])[:, None, None]  # ten points apart
        studies.append({("a", "acc"): cell(*(100.0 * right[0])), ("b", "acc"): cell(*(100.0 * right[1]))})
    assert rate(["abs(acc(a) - acc(b)) < 10"], studies, wrong=("reproduced",)) <= BOUND
    assert rate(["abs(acc(a) - acc(b)) < 30"], studies, wrong=("reproduced",)) >= 0.9


def test_one_t_with_welch_degrees_of_freedom_would_be_wrong_too_often():
    rng = np.random.default_rng(6)
    runs, seeds, between, images = 1500, 2, 9.0, 1.0
    found, welch = 0, 0
    for _ in range(runs):
        variance = between * rng.chisquare(seeds - 1) / (seeds - 1)
        value = rng.normal() * np.sqrt(between + images)
        found += two_sided_p(value, [(variance, seeds - 1), (images, 199)]) <= 0.05
        df = (variance + images) ** 2 / (variance**2 / (seeds - 1) + images**2 / 199)
        welch += 2 * stdtr(df, -abs(value) / np.sqrt(variance + images)) <= 0.05
    assert found / runs <= 0.06 < 0.09 < welch / runs


def test_the_sum_of_two_errors_has_the_known_limits():
    for value, df in ((2.0, 3), (30.0, 1), (8.0, 4), (2.5, 500)):
        assert two_sided_p(value, [(1.0, df)]) == pytest.approx(2 * stdtr(df, -value), rel=1e-3)
        assert two_sided_p(value, [(1.0, df), (1e-9, 99)]) == pytest.approx(2 * stdtr(df, -value), rel=1e-3)
    # two Cauchy variables: √V₁·t₁ + √V₂·t₂ is a Cauchy variable of scale √V₁ + √V₂
    assert two_sided_p(9.0, [(1.0, 1), (4.0, 1)]) == pytest.approx(2 * stdtr(1, -3.0), rel=1e-3)
    assert half_width([(0.25, 2)], confidence=0.95) == pytest.approx(4.302653 / 2, rel=1e-4)
