"""Expected calibration error (Guo et al., "On calibration of modern neural networks", 2017).

Images go into fifteen equal bins by the probability of the predicted class; the gap between a bin's mean probability
and its accuracy is weighted by the images in it.
"""

from __future__ import annotations

import numpy as np

from hardtack.results.intervals import resamples

BINS = 15


def calibration_error(certainty: np.ndarray, correct: np.ndarray) -> float:
    """The error from the probability of the predicted class and whether it was correct, one of each per image."""
    return _weighted_gap(_places(certainty), certainty.astype(float) - correct)


def calibration_interval(certainty: np.ndarray, correct: np.ndarray) -> tuple[float, float]:
    """The 95 % bootstrap interval of the error; it contains the error itself."""
    value = calibration_error(certainty, correct)
    place, gap = _places(certainty), certainty.astype(float) - correct
    draws = [_weighted_gap(place[rows], gap[rows]) for rows in resamples(len(correct))]
    low, high = float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))
    return min(low, value), max(high, value)


def reliability(certainty: np.ndarray, correct: np.ndarray) -> list[list[float]]:
    """The bins that hold an image: (low, high, images, mean certainty, accuracy)."""
    place, rows = _places(certainty), []
    for number in range(BINS):
        inside = place == number
        if inside.any():
            means = [float(certainty[inside].mean()), float(correct[inside].mean())]
            rows.append([number / BINS, (number + 1) / BINS, int(inside.sum()), *means])
    return rows


def _places(certainty: np.ndarray) -> np.ndarray:
    """Bins are open below and closed above, as Guo et al. have them."""
    return np.clip(np.ceil(certainty.astype(float) * BINS).astype(int) - 1, 0, BINS - 1)


def _weighted_gap(place: np.ndarray, gap: np.ndarray) -> float:
    return float(np.abs(np.bincount(place, weights=gap, minlength=BINS)).sum() / len(gap))
