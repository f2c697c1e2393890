"""Gradients in fp16 without loss of small numbers: each image's own is scaled by a power of two at the logits.

fp16 has no numbers below 6·10⁻⁸, and the gradient of one pixel is often smaller. Between the logits and the pixels a
gradient is computed as if the loss were larger, so that its largest number at the logits is `PEAK`; the pixels get
what belongs to the loss itself. Each image has a factor of its own: a batch's confident images do not drown.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PEAK = 256.0
"""Largest number of a scaled gradient at the logits; fp16 ends at 65504, and gradients grow on their way."""
_FURTHEST = 120
"""Powers of two by which a gradient is scaled at most, either way."""


class GradientScale:
    """One pass: `x = scale.pixels(x)`, the layers in fp16, `logits = scale.logits(logits)` in fp32."""

    def __init__(self) -> None:
        self.factor: Tensor | None = None  # N; set when the gradient enters at the logits

    def pixels(self, x: Tensor) -> Tensor:
        return _Pixels.apply(x, self)

    def logits(self, logits: Tensor) -> Tensor:
        return _Logits.apply(logits, self)


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, scale: GradientScale) -> Tensor:
        ctx.scale = scale
        return logits.view_as(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        largest = gradient.abs().amax(dim=1) / PEAK
        exponent = torch.frexp(largest).exponent.clamp(-_FURTHEST, _FURTHEST)
        # a row of zeros has exponent 0 and stays as it is, and so does one that is not finite
        ctx.scale.factor = torch.ldexp(torch.ones_like(largest), -exponent)
        return gradient * ctx.scale.factor[:, None], None


class _Pixels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: GradientScale) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        factor, ctx.scale.factor = ctx.scale.factor, None
        return gradients[0] / factor.view(-1, *[1] * (gradients[0].dim() - 1)), None
