"""Normalisation layers of a fast copy by faster kernels: its parameters are fixed, only pixels have gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.models import kernels


def quicken(model: nn.Module) -> None:
    """Replace the normalisation layers of a frozen model in eval mode, in place; without Triton nothing is replaced."""
    if not kernels.available():
        return
    for parent in model.modules():
        for name, child in parent.named_children():
            # timm's LayerNorm is torch's with a switch; subclasses that normalise another axis keep their own way
            if isinstance(child, nn.LayerNorm) and type(child).__name__ == "LayerNorm" and _is_row(child):
                setattr(parent, name, _LayerNorm(child))
            elif type(child) is nn.BatchNorm2d and child.running_var is not None:
                setattr(parent, name, FrozenBatchNorm(child))


def _is_row(norm: nn.LayerNorm) -> bool:
    return len(norm.normalized_shape) == 1 and norm.normalized_shape[0] <= kernels.WIDEST and norm.elementwise_affine


class _LayerNorm(nn.Module):
    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # a compiler fuses it with what stands beside it
            return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)
        return kernels.layer_norm(x, self.weight, self.bias, self.eps, x.dtype)


class FrozenBatchNorm(nn.Module):
    """A factor and a summand per channel, in fp32."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.factor, self.summand = _affine(norm)  # no buffers: they stay as they are in a cast

    def follow(self, norm: nn.BatchNorm2d) -> None:
        """Take over the statistics and parameters that the layer has now."""
        factor, summand = _affine(norm)
        self.factor.copy_(factor)
        self.summand.copy_(summand)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return (x * self.factor[:, None, None] + self.summand[:, None, None]).to(x.dtype)
        return kernels.affine(x, self.factor, self.summand)


def _affine(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None and norm.running_var is not None
    factor = (norm.running_var.double() + norm.eps).rsqrt()
    factor = factor if norm.weight is None else factor * norm.weight.detach().double()
    summand = -norm.running_mean.double() * factor
    summand = summand if norm.bias is None else summand + norm.bias.detach().double()
    return factor.float(), summand.float()
