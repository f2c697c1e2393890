"""Tests of one linear claim: a sum of cells is above or below a number, or lies within a margin.

One seed: the images are the sample, and the result is about these trainings alone.
- a difference of two columns that are right or wrong for each image: McNemar's exact test
- another sum against 0 that an exchange of rows turns into its negative (a difference of two rows, of two groups of
  equal size, a trend): a sign-flip test. Its null hypothesis, values per image that are symmetric about 0, is then the
  one that the rows are exchangeable.
- one column that is right or wrong, against a number: the exact binomial test
- every other sum, a number or a margin: a t test. A sign-flip test would be wrong, because a mean of 0 does not make
  the values symmetric. 20 images of which none differs are no evidence that two accuracies differ by less than a point,
  but all signs of d - 1 are equal. In `acc(a) > mean(acc, [b, c, d])` an image counts 100 where only a is wrong and 33
  where only b is, and the rare large values may be absent (18 % false verdicts in simulations of 32 images).

Several seeds: the error of the mean over seeds and the error of the images add up (`behrens_fisher`). The errors of
single pairs of seed and image are in both, which makes the test conservative. Columns without one value per image have
the error of the seeds alone.

Columns that follow from the settings alone (multiply-adds) have no error: their difference decides, without a test.

Wherever a t test uses the variance over images and the columns are shares, four images are added to the variance, two
at each end of what the sum can be (Agresti and Coull, "Approximate is better than 'exact' for interval estimation of
binomial proportions", American Statistician 1998): no variance of 0 from few images that agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hardtack.results.intervals import bootstrap, paired, sign_flip_test, wilson
from hardtack.studies.behrens_fisher import half_width, two_sided_p
from hardtack.studies.cells import Cells
from hardtack.studies.claim_expression import Linear
from hardtack.studies.claim_sample import Sample, gather

_FLIPS = 20_000
MCNEMAR, SIGN_FLIP, BINOMIAL = "McNemar's exact test", "sign-flip test", "exact binomial test"
T_IMAGES, T_SEEDS, T_BOTH = "t over images", "t over seeds alone", "t over seeds and images"
EXACT = "exact"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The test of one part of a claim. `p` is None if no test was possible; `reason` says why."""

    part: Linear | None = None
    as_claimed: bool = False
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: int = 0
    seeds: int = 0
    rows: int = 0
    test: str = ""
    reason: str = ""


def compare_with_zero(
    part: Linear,
    *,
    above: bool,
    cells: Cells,
    units: Mapping[str, str],
    confidence: float,
    exact: Collection[str] = (),
) -> Outcome:
    """Whether the part is above (or below) 0. The effect leaves out its constant, which is the claim's number.

    `exact` are columns without any error, such as multiply-adds.
    """
    sample = gather(part.coefficients(), cells, units)
    if isinstance(sample, str):
        return Outcome(part=part, reason=sample)
    threshold = -part.constant
    outcome = Outcome(
        part=part, effect=sample.value, n=sample.n, seeds=sample.seeds,
        as_claimed=sample.value > threshold if above else sample.value < threshold,
    )  # fmt: skip
    if all(column in exact for _, column in part.coefficients()):
        return replace(outcome, p=0.0, test=EXACT)
    test = _choose(sample, against_zero=threshold == 0)
    return _finish(outcome, sample, test, _p(sample, test, threshold), confidence)


def within_margin(part: Linear, *, margin: float, cells: Cells, units: Mapping[str, str], confidence: float) -> Outcome:
    """Two one-sided tests (Schuirmann 1987): is the part inside the margin? If it is outside: is it so by chance?

    The interval has confidence 1 - 2α, which lies inside the margin exactly if both tests reject at α.
    """
    sample = gather(part.coefficients(), cells, units)
    if isinstance(sample, str):
        return Outcome(part=part, reason=sample)
    low, high = -part.constant - margin, -part.constant + margin
    inside = low < sample.value < high
    outcome = Outcome(part=part, effect=sample.value, n=sample.n, seeds=sample.seeds, as_claimed=inside)
    test = _choose(sample, against_zero=False)
    nearer = low if abs(sample.value - low) < abs(sample.value - high) else high
    p = _p(sample, test, nearer)
    if p is not None and inside:
        other = _p(sample, test, high if nearer == low else low)
        p = max(p, other or 0.0) / 2  # inside, the small tails are those towards the limits
    return _finish(outcome, sample, test, p, 2 * confidence - 1)


def _finish(outcome: Outcome, sample: Sample, test: str, p: float | None, confidence: float) -> Outcome:
    if p is None:
        return replace(outcome, reason=_no_test(sample))
    low, high = _interval(sample, test, confidence)
    return replace(outcome, p=p, low=low, high=high, test=test)


def _no_test(sample: Sample) -> str:
    if sample.seeds > 1:
        return f"all {sample.seeds} seeds gave the same value: there is no spread to test against"
    if not sample.complete:
        return "one training and no value per image: there is no interval"
    return "one image" if sample.n == 1 else "all images have the same value: there is no spread to test against"


def _choose(sample: Sample, *, against_zero: bool) -> str:
    if sample.seeds > 1:
        return T_SEEDS if sample.per_image is None else T_BOTH
    opposite = len(sample.coefficients) == 2 and abs(sum(sample.coefficients)) < 1e-12 * abs(sample.coefficients[0])
    if against_zero and sample.binary and opposite:
        return MCNEMAR
    if against_zero and sample.exchangeable:
        return SIGN_FLIP
    return BINOMIAL if sample.binary and len(sample.coefficients) == 1 else T_IMAGES


def _p(sample: Sample, test: str, threshold: float) -> float | None:
    """The two-sided p-value of `value = threshold`; None if there is nothing to test with."""
    if sample.seeds == 1 and (not sample.complete or sample.n < 2):
        return None
    if test == MCNEMAR and sample.binary:
        return paired(*sample.binary).p_value
    if test == SIGN_FLIP and sample.per_image is not None:
        return sign_flip_test(sample.per_image, flips=_FLIPS)
    if test == BINOMIAL and sample.binary:
        return _binomial(sample.binary[0], threshold / (sample.coefficients[0] * sample.largest))
    errors = _errors(sample)
    return two_sided_p(sample.value - threshold, errors) if errors else None


def _binomial(correct: np.ndarray, share: float) -> float:
    from scipy.special import bdtr, bdtrc

    n, k = len(correct), int(correct.sum())
    if not 0 < share < 1:  # the number cannot be reached, or only by all images or none
        return 1.0 if k == n * share else 0.0
    below = float(bdtr(k, n, share))
    above = float(bdtrc(k - 1, n, share)) if k else 1.0
    return min(1.0, 2 * min(below, above))


def _interval(sample: Sample, test: str, confidence: float) -> tuple[float, float]:
    if test in (MCNEMAR, SIGN_FLIP) and sample.per_image is not None:
        return bootstrap(sample.per_image, confidence=confidence)
    if test == BINOMIAL and sample.binary:
        scale = sample.coefficients[0] * sample.largest
        ends = [scale * end for end in wilson(int(sample.binary[0].sum()), sample.n, confidence)]
        return min(ends), max(ends)
    half = half_width(_errors(sample), confidence=confidence)
    return sample.value - half, sample.value + half


def _errors(sample: Sample) -> list[tuple[float, float]]:
    """The variance of the mean and the degrees of freedom, from seeds and from images; without those that are 0."""
    errors = []
    rounding = (1e-12 * sample.magnitude) ** 2  # equal values may differ in the last bits of their sums
    if sample.seeds > 1:
        errors.append((float(sample.per_seed.var(ddof=1)) / sample.seeds, sample.seeds - 1.0))
    if sample.per_image is not None and sample.n > 1:
        errors.append((_image_variance(sample.per_image, sample.bounds), sample.n - 1.0))
    return [(variance, df) for variance, df in errors if variance > rounding]


def _image_variance(values: np.ndarray, bounds: tuple[float, float] | None) -> float:
    n, mean = len(values), float(values.mean())
    squares = float(((values - mean) ** 2).sum())
    if bounds is None:
        return squares / (n - 1) / n
    added = sum(2 * (end - mean) ** 2 for end in bounds)
    return (squares + added) / (n + 4) ** 2
