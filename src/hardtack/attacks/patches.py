"""What attacks on patches share: the grid of patches, what may change in it, and the attention a patch receives.

An image is cut into squares of `size` pixels from the upper left; those at the right and lower edge may be cut
off. Attention maps of any model that `tap` can read are laid over the same image by their own grid of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.models import tap
from hardtack.models.blocks import class_name
from hardtack.models.tokens import find_grid, usual_patch_size
from hardtack.threats import Threat

WHOLE_BOX = Threat("linf", Fraction(1))
"""Any pixel may take any value: what bounds a patch attack is how many pixels change."""


# ---------------------------------------------------------------- the grid of patches


def grid(x: Tensor, size: int, *, at_least: int | None = None) -> tuple[int, int]:
    """Rows and columns of patches; the last of each may be cut off by the edge."""
    if size > min(x.shape[2:]):
        raise UserError(f"patch_size is {size} pixels, but the images are {x.shape[2]}×{x.shape[3]}")
    rows, columns = -(-x.shape[2] // size), -(-x.shape[3] // size)
    if at_least is not None and at_least > rows * columns:
        raise UserError(f"patches={at_least}, but an image has only {rows * columns} patches of {size} pixels")
    return rows, columns


def pick(scores: Tensor, count: int) -> Tensor:
    """The `count` highest scores of each image (N×…), as a bool tensor of the same shape."""
    flat = scores.flatten(1)
    best = flat.topk(min(count, flat.shape[1]), dim=1).indices
    return torch.zeros_like(flat, dtype=torch.bool).scatter(1, best, True).reshape(scores.shape)


def cover(chosen: Tensor, size: int, x: Tensor) -> Tensor:
    """The pixels of the chosen patches: N×rows×columns to N×1×H×W."""
    pixels = chosen.repeat_interleave(size, dim=1).repeat_interleave(size, dim=2)
    return pixels[:, None, : x.shape[2], : x.shape[3]]


def per_patch(values: Tensor, size: int) -> Tensor:
    """Sums of a map N×1×H×W over patches: N×rows×columns."""
    return F.avg_pool2d(values, size, ceil_mode=True, divisor_override=1)[:, 0]


def differs_in(x_adv: Tensor, x: Tensor, size: int | None, count: Callable[[int], int]) -> Tensor:
    """Whether each image differs in at most `count(number of patches)` patches of a grid, of some grid for None."""
    changed = (x_adv != x).any(dim=1, keepdim=True).float()
    height, width = x.shape[2:]
    divisors = [side for side in range(1, min(height, width)) if height % side == 0 and width % side == 0]
    sizes = [size] if size is not None else sorted({*divisors, usual_patch_size(x.shape[2:])})
    allowed = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for side in sizes:
        rows, columns = grid(x, side)
        allowed |= (per_patch(changed, side) > 0).flatten(1).sum(dim=1) <= count(rows * columns)
    return allowed


CHOSEN = {"attention": "by attention", "saliency": "by saliency", "random": "at random"}


def in_words(count: int, size: int | None, choose: str | None) -> str:
    """`2 patches of 8×8, chosen by attention`, as far as it is settled."""
    words = f"{count} patch{'es' * (count > 1)}" + (f" of {size}×{size}" if size else "")
    return f"{words}, chosen {CHOSEN[choose]}" if choose else words


# ---------------------------------------------------------------- attention


class Tokens(NamedTuple):
    """Where the patches are in one attention map: after `prefix` tokens, squares of `size` pixels."""

    number: int
    prefix: int
    size: int


class Maps(NamedTuple):
    """Attention maps, which of them are between patches of the image, and the reason if none is."""

    weights: list[Tensor]
    tokens: list[Tokens]
    reason: str


def read_attention(model: nn.Module, x: Tensor) -> Maps:
    """The attention maps of `x` (one forward pass)."""
    try:
        with tap(model, features=False) as taps, torch.no_grad():
            model(x)
    except UserError as error:  # compiled
        return Maps([], [], str(error))
    maps, name = taps.attention, class_name(model)
    if any(len(weights) != len(x) for weights in maps):
        return Maps(maps, [], f"the attention maps of {name} are per window, not between all patches")
    matches = (_find_tokens(number, weights, taps.prefix_tokens, x) for number, weights in enumerate(maps))
    tokens = [block for block in matches if block is not None]
    reason = taps.note or f"the attention of {name} is not between patches of the image"
    return Maps(maps, tokens, "" if tokens else reason)


def _find_tokens(number: int, weights: Tensor, prefix_tokens: int, x: Tensor) -> Tokens | None:
    """The square patches that tile the image and make as many tokens as the map N×heads×T×T has."""
    if weights.shape[-1] != weights.shape[-2]:  # class attention, or keys of another grid
        return None
    height, width = x.shape[2:]
    found = find_grid(weights.shape[-1], prefix_tokens, (height, width))
    size = found and found.patch_size((height, width))
    return Tokens(number, found.prefix, size) if found and size and height % size == width % size == 0 else None


def attention_received(weights: Tensor, tokens: Tokens, x: Tensor) -> Tensor:
    """Mean attention over heads and queries that each patch receives, spread over its pixels: N×1×H×W."""
    received = weights.mean(dim=(1, 2))[:, tokens.prefix :]
    return cover(received.reshape(len(x), *grid(x, tokens.size)), tokens.size, x)


def token_weights(free: Tensor, tokens: Tokens) -> Tensor:
    """The share of each token in the pixels that may change: N×T, rows sum to one."""
    shares = per_patch(free.float(), tokens.size).flatten(1)
    return F.pad(shares / shares.sum(dim=1, keepdim=True), (tokens.prefix, 0))


def log_attention(weights: Tensor, shares: Tensor) -> Tensor:
    """Mean over queries of the log attention, heads averaged, that the weighted tokens receive: N values."""
    logs = weights.mean(dim=1).clamp_min(1e-30).log().mean(dim=1)
    return (logs * shares).sum(dim=1)
