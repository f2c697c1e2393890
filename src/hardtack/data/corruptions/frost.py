"""Frost: a piece of an overlay picture of ice crystals, mixed with the image."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.overlays import PICKED, stack_overlays
from hardtack.data.corruptions.parts import in_parts

# (share of the image, share of the frost) by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, float], ...]] = {
    "cifar": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "imagenet": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
}
_STEP: dict[Constants, int] = {"cifar": 5, "imagenet": 1}
"""Every n-th pixel of an overlay is used."""
_OVERLAY, _TOP, _LEFT = range(3)  # streams of random numbers


@corruptions.register("frost", stream=9, help="a picture of ice crystals mixed in")
def frost(x: Tensor, keys: Tensor, severity: int, constants: Constants, folder: Path | None = None) -> Tensor:
    """Mix the image with a randomly placed piece of one of five overlays.

    With the published photographs (`folder`) the published function: five of the six are ever picked; red, green and
    blue are in their places; for CIFAR they are shrunk to a fifth, which at that factor takes every fifth pixel; sums
    are equal to the last bit. An overlay that is not larger than the image, where the original fails, is enlarged
    until it is. Without a folder the overlays are drawn (ice.py): the same mixing, other pictures; `frost_source`
    says which, and results must.
    """
    height, width = x.shape[-2:]
    share, frost_share = _CONSTANTS[constants][severity - 1]
    overlays = stack_overlays(folder, _STEP[constants], (height, width), x.device)

    def add_frost(x: Tensor, keys: Tensor) -> Tensor:
        chosen = randomness.integers(keys, PICKED, (), _OVERLAY)
        # as the original: the last possible place is never taken
        top = randomness.integers(keys, overlays.heights[chosen] - height, (), _TOP)
        left = randomness.integers(keys, overlays.widths[chosen] - width, (), _LEFT)
        pieces = overlays.pieces(chosen, top, left, height, width)
        # in float64 and cut off here: sums often are whole levels, or a rounding error below
        mixed = (x * 255).round().double() * share + pieces.double() * frost_share
        return mixed.clamp_(0, 255).floor_().float() / 255

    return in_parts(add_frost, x, keys)
