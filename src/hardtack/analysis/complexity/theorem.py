"""The computable terms of Theorem 1 of paper 3, for each block with an attention and an MLP.

The theorem bounds the robust error of one attention and one MLP, W₁ φ(A₁ x), with probability 1 − p by

    (1/n) Σ Eᵢ  +  (1/γ) (4/n^(3/2) + 60 log n log(2 d_max)/n · s₁ s₂ C + 2 ε b₁ b₂/√n)  +  3 √(log(2/p)/(2n)),
    C = ((b₁/s₁)^(2/3) + (b₂/s₂)^(2/3))^(3/2) · ‖X‖_F,

where s₁ ≥ ‖A₁‖, s₂ ≥ ‖W₁‖, b₁ ≥ ‖A₁‖₁, b₂ ≥ ‖w₁,ₖ‖₁, X are the n images and d_max is the largest width. (The paper
prints the exponents of C as subscripts; they are exponents in the theorem of Yin, Kannan and Bartlett 2019 that it
extends.) Its A₁ is softmax(…)V, which depends on the image and is not a weight; the matrices of query, key and value
are used instead. Two parts are not computed: the margin indicators Eᵢ, which need a semidefinite program for each image
and class, and γ, a free parameter. Without Eᵢ the terms are not a bound.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from hardtack.analysis.sparsity.analysis import components, spectral_norm, weight_tensors
from hardtack.models.blocks import find_blocks
from hardtack.models.parts import short_name

LEFT_OUT = (
    "of Theorem 1 the terms with norms, the adversary and the failure probability are computed, before the division "
    "by γ, which is not fixed. Its margins E_i need a semidefinite program for each image and class, and its A_1 = "
    "softmax(…)V is no weight (query, key and value are used instead)"
)


def block_terms(model: nn.Module, *, eps: float, n: int, d: int, frobenius: float) -> list[dict[str, Any]]:
    """For every block with an attention and an MLP: the norms, the factors and the terms of the theorem.

    s1, b1 are of query, key and value, s2, b2 of the MLP: where there are several matrices, the largest norm. `d` is
    the dimension of an input and `frobenius` the norm of all n of them. `middle_term` is 60 log n log(2 d_max)/n ·
    s1 s2 C, `term` the adversary's 2 ε b1 b2/√n; both are before the division by γ.
    """
    weights = list(weight_tensors(model))
    kinds = components(model, [name for name, _ in weights])
    rows = []
    for block in find_blocks(model):
        inside = [
            (w.detach().float(), kind) for (name, w), kind in zip(weights, kinds, strict=True) if _in(name, block.name)
        ]
        parts = {kind: [w for w, of in inside if of == kind] for kind in ("qkv", "feed-forward")}
        if not all(parts.values()):
            continue
        s1, s2 = (max(map(spectral_norm, parts[kind])) for kind in ("qkv", "feed-forward"))
        b1, b2 = max(map(_l1_norm, parts["qkv"])), max(map(_column_sum, parts["feed-forward"]))
        widths = [side for tensors in parts.values() for w in tensors for side in w.flatten(1).shape]
        middle = middle_term(s1=s1, s2=s2, b1=b1, b2=b2, d_max=max(d, *widths), n=n, frobenius=frobenius)
        term = 2 * eps * b1 * b2 / math.sqrt(n)
        row = {"block": short_name(block.name), "s1": s1, "b1": b1, "s2": s2, "b2": b2, "term": term}
        rows.append({**row, **middle})
    return rows


def middle_term(
    *, s1: float, s2: float, b1: float, b2: float, d_max: int, n: int, frobenius: float
) -> dict[str, float]:
    """60 log n log(2 d_max)/n · s₁ s₂ C and its factors. A matrix of zeros (s = b = 0) makes the term 0."""
    ratios = [b / s if s > 0 else 0.0 for b, s in ((b1, s1), (b2, s2))]
    c = sum(ratio ** (2 / 3) for ratio in ratios) ** 1.5 * frobenius
    log_n, log_2d = math.log(n), math.log(2 * d_max)
    return {
        "d_max": d_max, "log_n": log_n, "log_2d_max": log_2d, "C": c,
        "middle_term": 60 * log_n * log_2d / n * s1 * s2 * c,
    }  # fmt: skip


def shared_terms(*, n: int, failure: float) -> dict[str, float]:
    """The terms that no weight enters: 4/n^(3/2), before the division by γ, and 3 √(log(2/p)/(2n))."""
    return {"first_term": 4 / n**1.5, "confidence_term": 3 * math.sqrt(math.log(2 / failure) / (2 * n))}


def _in(name: str, block: str) -> bool:
    return name.startswith(f"{block}.")


def _l1_norm(weight: Tensor) -> float:
    """The operator norm on l1: the largest column sum of magnitudes."""
    return float(weight.flatten(1).abs().sum(dim=0).max())


def _column_sum(weight: Tensor) -> float:
    """The largest l1 norm of a row (the weights of one output)."""
    return float(weight.flatten(1).abs().sum(dim=1).max())
