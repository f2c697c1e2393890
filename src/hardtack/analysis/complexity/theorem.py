"""The computable terms of Theorem 1 of paper 3: norms of the weights of each block, and the adversary's term.

The theorem bounds the robust error of one attention and one MLP, W₁ φ(A₁ x), by terms with s₁ ≥ ‖A₁‖, s₂ ≥ ‖W₁‖ and
b₁ ≥ ‖A₁‖₁, b₂ ≥ ‖w₁,ₖ‖₁. Its A₁ is softmax(…)V, which depends on the image and is not a weight; the matrices of query,
key and value are used instead. Two parts are not computed: the margin indicators Eᵢ, which need a semidefinite program
for each image and class, and γ, a free parameter. Without Eᵢ the terms are not a bound.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from hardtack.analysis.sparsity.analysis import components, spectral_norm, weight_tensors
from hardtack.models.blocks import find_blocks
from hardtack.models.parts import short_name

LEFT_OUT = (
    "of Theorem 1 only the norms and the adversary's term are computed. Its margins E_i need a semidefinite program "
    "for each image and class, its A_1 = softmax(…)V is no weight (query, key and value are used instead), and γ is "
    "not fixed"
)


def block_norms(model: nn.Module, *, eps: float, n: int) -> list[dict[str, Any]]:
    """For every block with an attention and an MLP: s₁, b₁ of query, key and value; s₂, b₂ of the MLP; 2 ε b₁b₂/√n.

    Where there are several matrices, the largest norm is used.
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
        term = 2 * eps * b1 * b2 / math.sqrt(n)
        rows.append({"block": short_name(block.name), "s1": s1, "b1": b1, "s2": s2, "b2": b2, "term": term})
    return rows


def _in(name: str, block: str) -> bool:
    return name.startswith(f"{block}.")


def _l1_norm(weight: Tensor) -> float:
    """The operator norm on l1: the largest column sum of magnitudes."""
    return float(weight.flatten(1).abs().sum(dim=0).max())


def _column_sum(weight: Tensor) -> float:
    """The largest l1 norm of a row (the weights of one output)."""
    return float(weight.flatten(1).abs().sum(dim=1).max())
