"""Empirical Rademacher complexity of linear classes {x ↦ ⟨w, x⟩ : ‖w‖_p ≤ Θ} on images, with and without adversary.

For signs σ the supremum over the class has a closed form. With u = Σ σᵢ yᵢ xᵢ, s = Σ σᵢ and q dual to p,

    clean      sup_w Σ σᵢ yᵢ⟨w, xᵢ⟩                               =  Θ ‖u‖_q
    attacked   sup_w Σ σᵢ min over ‖δ‖∞ ≤ ε of yᵢ⟨w, xᵢ + δ⟩       =  Θ ‖max(|u| − ε s, 0)‖_q

since the adversary reduces every margin by ε‖w‖₁. The complexity is the mean over all signs, divided by n. It is exact
if all 2ⁿ sign vectors are used, else an estimate from random ones.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hardtack.base import randomness

Norm = Literal["l1", "l2", "linf"]
DUAL: dict[str, float] = {"l1": math.inf, "l2": 2, "linf": 1}  # q with 1/p + 1/q = 1
EXACT_UP_TO = 16  # images


def signs(start: int, stop: int, n: int, *, seed: int) -> Tensor:
    """Sign vectors, (stop − start)×n of ±1: an enumeration of all, or the random ones with these indices."""
    numbers = torch.arange(start, stop)
    if n <= EXACT_UP_TO:
        chosen = (numbers[:, None] >> torch.arange(n)) & 1
    else:
        chosen = randomness.uniform(randomness.make_keys(numbers, seed), (n,)) < 0.5
    return 2.0 * chosen.float() - 1


def suprema(sums: Tensor, total: Tensor, *, norm: Norm, eps: float) -> tuple[Tensor, Tensor]:
    """Clean and attacked supremum over the class with Θ = 1, for each row u of `sums` and s of `total`.

    The attacked supremum is the mean of those for σ and −σ, which are equally likely: |u| is the same, s changes sign.
    """
    size, q, shift = sums.double().abs(), DUAL[norm], eps * total.double()[:, None]
    both = [torch.linalg.vector_norm((size + moved).clamp_min(0), q, dim=1) for moved in (-shift, shift)]
    return torch.linalg.vector_norm(size, q, dim=1), (both[0] + both[1]) / 2


def extra(norm: Norm, *, eps: float, bound: float, d: int, n: int) -> float:
    """ε Θ d^(1−1/p) / √n: the adversary's term in the bound of Lemma 1 of paper 3."""
    return eps * bound * d ** (1 / DUAL[norm]) / math.sqrt(n)


def closed_bounds(columns: np.ndarray, norm: Norm, *, n: int, bound: float) -> tuple[float, float]:
    """Lower and upper bound of the clean complexity on n images, from the l2 norm of each coordinate over the images.

    l2 and linf by Khintchine's inequality (its best constant 1/√2 below); l1 by Massart's lemma above, and below by
    Khintchine's on the largest coordinate.
    """
    if norm == "l2":
        size = float(np.linalg.norm(columns))
        return bound * size / n / math.sqrt(2), bound * size / n
    if norm == "linf":
        return bound * columns.sum() / n / math.sqrt(2), bound * columns.sum() / n
    largest = float(columns.max())
    return bound * largest / n / math.sqrt(2), bound * largest * math.sqrt(2 * math.log(2 * len(columns))) / n
