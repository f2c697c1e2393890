"""The Jacobian of attention between scalar tokens in closed form: a correction of equation 5 of paper 4.

    f(z) = P z,  P = softmax(a z zᵀ) by rows
    J    = P + a ( diag(z) P diag(z) − diag(μ∘z) P + diag(s²) ),  μ = P z,  s²ᵢ = Σₖ Pᵢₖ zₖ² − μᵢ²

Equation 5 of the paper has P diag(z) diag(μ) as the second term, which scales the columns of P instead of the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scalar_attention(z: Tensor, a: float) -> Tensor:
    """f(z) for z of length T."""
    return torch.softmax(a * torch.outer(z, z), dim=-1) @ z


def scalar_attention_jacobian(z: Tensor, a: float) -> Tensor:
    """∂f/∂z, T×T.

    Token i attends with weights Pᵢₖ ∝ exp(a zᵢ zₖ). A change of zⱼ changes the value (term P), the key (term
    a zᵢ Pᵢⱼ (zⱼ − μᵢ)) and, for j = i, the query (term a s²ᵢ).
    """
    p = torch.softmax(a * torch.outer(z, z), dim=-1)
    mu = p @ z
    variance = p @ z**2 - mu**2
    return p + a * (z[:, None] * p * (z[None, :] - mu[:, None]) + torch.diag(variance))


def printed_jacobian(z: Tensor, a: float) -> Tensor:
    """Equation 5 as printed, which is not the derivative; kept so that the difference can be shown."""
    p = torch.softmax(a * torch.outer(z, z), dim=-1)
    mu = p @ z
    variance = p @ z**2 - mu**2
    return p + a * (z[:, None] * p * z[None, :] - p * (z * mu)[None, :] + torch.diag(variance))
