"""Statistics of results: intervals for a count (Wilson; Clopper and Pearson), the bootstrap for a mean, paired tests.

Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927; Clopper and Pearson, "The use
of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 1934; McNemar, "Note on the
sampling error of the difference between correlated proportions or percentages", Psychometrika 1947.

Wilson's interval and the bootstrap are written out here and not taken from scipy.stats: stored results hold them to the
last bit, where scipy's differ, and the bootstrap's draws are part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from hardtack.base.errors import UserError


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (low, high) for `successes` out of `n`; always inside [0, 1]."""
    if n <= 0:
        raise UserError(f"an interval needs at least one image, found n={n}")
    if not 0 <= successes <= n:
        raise UserError(f"{successes} successes out of {n} is impossible; successes must lie in 0..n")
    if not 0 < confidence < 1:
        raise UserError(f"confidence must lie between 0 and 1, found {confidence}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At the ends the formula is exactly 0 or 1; floating point leaves 1e-18 there.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def clopper_pearson_lower(successes: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """The one-sided lower bound of a probability: with probability 1 − `alpha` or more it lies at or above the bound.

    It is the p at which `successes` or more of `n` have the probability `alpha`; 0 where there is no success.
    """
    from scipy.special import betaincinv

    count = np.asarray(successes, dtype=float)
    some = np.maximum(count, 1.0)
    return np.where(count > 0, betaincinv(some, n - some + 1, alpha), 0.0)


DRAWS = 1000
_DRAWN_AT_ONCE = 2**14


def resamples(n: int) -> Iterator[np.ndarray]:
    """Row numbers of `n` images drawn with replacement; every call gives the same draws."""
    generator = np.random.default_rng(0)
    return (generator.integers(0, n, n) for _ in range(DRAWS))


def bootstrap(per_image: np.ndarray, *, confidence: float = 0.95) -> tuple[float, float]:
    """An interval for the mean of one number per image.

    Means of few images are computed many at a time: the same draws and means to the bit, in a tenth of the time.
    """
    n, at_once = len(per_image), max(1, _DRAWN_AT_ONCE // len(per_image))
    generator = np.random.default_rng(0)
    blocks = [min(at_once, DRAWS - start) for start in range(0, DRAWS, at_once)]
    means = np.concatenate([per_image[generator.integers(0, n, (rows, n))].mean(axis=1) for rows in blocks])
    tail = (1 - confidence) / 2
    return float(np.quantile(means, tail)), float(np.quantile(means, 1 - tail))


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two models on the same images: their difference, and the exact p-value of no difference."""

    difference: float
    only_first: int
    only_second: int
    p_value: float
    n: int


def paired(first: ArrayLike, second: ArrayLike) -> Paired:
    """McNemar's exact two-sided test of two boolean vectors (n,) over the same images."""
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise UserError(f"a paired test needs two vectors over the same images, found {a.shape} and {b.shape}")
    only_first, only_second = int((a & ~b).sum()), int((~a & b).sum())
    return Paired(
        difference=(only_first - only_second) / a.size,
        only_first=only_first,
        only_second=only_second,
        p_value=_two_sided_sign_test(min(only_first, only_second), only_first + only_second),
        n=int(a.size),
    )


def _two_sided_sign_test(smaller: int, total: int) -> float:
    """2·P(X ≤ smaller) for X ~ Binomial(total, 1/2)."""
    from scipy.special import bdtr  # the binomial distribution function; scipy.stats takes seconds to import

    return min(1.0, 2 * float(bdtr(smaller, total, 0.5)))


FLIPS = 2000
_FLIPS_AT_ONCE = 64  # limits the memory that ten thousand images need


def sign_flip_test(difference: np.ndarray, *, flips: int = FLIPS) -> float:
    """Two-sided p-value of a mean difference per image under random signs; never below 1 / (`flips` + 1).

    Exact if the differences are symmetric about 0 under the null hypothesis, as those of two exchangeable models are.
    """
    generator, observed = np.random.default_rng(0), abs(difference.sum())
    tolerance = 1e-9 * np.abs(difference).sum()
    beyond = 0
    for start in range(0, flips, _FLIPS_AT_ONCE):
        signs = generator.integers(0, 2, (min(_FLIPS_AT_ONCE, flips - start), len(difference))) * 2 - 1
        beyond += int((np.abs(signs @ difference) >= observed - tolerance).sum())
    return (beyond + 1) / (flips + 1)
