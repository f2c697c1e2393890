"""Certificates of randomised smoothing: what a count of noisy copies certifies, and whether stored ones follow from it.

Cohen, Rosenfeld and Kolter, "Certified adversarial robustness via randomized smoothing", ICML 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hardtack.results.disagreement import Agreement, wrong_file
from hardtack.results.intervals import clopper_pearson_lower
from hardtack.results.record import Result

_NAME = "smoothing"
_TOLERANCE = 1e-6  # versions of scipy differ in the last digits


def certificate(count: np.ndarray, n: int, *, sigma: float, alpha: float) -> dict[str, np.ndarray]:
    """CERTIFY's columns where `count` of `n` copies are of the chosen class (N int)."""
    from scipy.special import ndtri

    lower = clopper_pearson_lower(count, n, alpha)
    abstained = lower <= 0.5
    radius = np.where(abstained, 0.0, sigma * ndtri(np.where(abstained, 0.5, lower)))
    return {"count": np.asarray(count), "lower_bound": lower, "abstained": abstained, "radius": radius}


def check_certificates(lines: Sequence[Result], columns: Mapping[str, np.ndarray], agreement: Agreement) -> None:
    """Radii, bounds and abstentions in a verdict file are those of its counts under the settings of the results."""
    if f"radius@{_NAME}" not in columns:
        return
    how = next((line.attack_settings for line in lines if "sigma" in line.attack_settings), {})
    n, count = int(how["samples"]), columns[f"count@{_NAME}"]
    expected = certificate(count, n, sigma=float(how["sigma"]), alpha=float(how["alpha"]))
    expected["samples"] = np.full(len(count), n)
    for name, values in expected.items():
        odd = np.flatnonzero(~np.isclose(columns[f"{name}@{_NAME}"].astype(float), values, rtol=0, atol=_TOLERANCE))
        if len(odd):
            stored = f"{columns[f'{name}@{_NAME}'][odd[0]]:g} for image {int(columns['index'][odd[0]])}"
            agreement.wrong.append(wrong_file(f"{name}@{_NAME}", stored, f"{values[odd[0]]:g}, from its count"))
