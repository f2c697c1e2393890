"""Where a network's tokens lie in the image, and how large its patches are.

Tokens are counted while one image passes the network. Attributes are not read: `patch_size` means the side of a token
in ViT, the kernel of the stem in PVTv2, the first of four stages in Swin and a detail of the attention in MobileViT.

The size of a patch, for attacks on patches, occlusion and RSPC:

- Most blocks attend, all on one grid (ViT, DeiT, XCiT, FAN, RVT-S …), or no block attends and all have one grid
  (MLP-Mixer, CoViT): the side of a token.
- Blocks attend on several grids, or after more convolutional than attending blocks (Swin, PVT, CvT, LeViT, CoAtNet,
  MobileViT, RVT-Ti …): the side of a token in the stage that is nearest to the usual size.
- All other networks have no patches of their own; the usual size is 16 pixels for images from 128 pixels on, 8 from 64
  on, 4 below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.models.blocks import Block, class_name, find_blocks
from hardtack.models.classifier import evaluating
from hardtack.models.taps import Taps, is_compiled, tap

Size = tuple[int, int]
"""Height and width of an image in pixels."""

# a fact of the network at one size of images: measured once, so that an attack on many batches does not pay for it
_MEASURED: WeakKeyDictionary[nn.Module, dict[Size, int | None]] = WeakKeyDictionary()


class Grid(NamedTuple):
    """Tokens that are patches of an image, row by row, after `prefix` other tokens."""

    prefix: int
    rows: int
    columns: int

    def patch_size(self, size: Size) -> int | None:
        """Pixels along the side of a token on images of this size; None where tokens are not square.

        Tokens at the right and lower edge may be cut off, and a rest smaller than a token may belong to none.
        """
        side = round(size[0] / self.rows)
        lines = zip(size, (self.rows, self.columns), strict=True)
        fits = side > 0 and all(count in (length // side, -(-length // side)) for length, count in lines)
        return side if fits else None


def find_grid(tokens: int, prefix: int, size: Size) -> Grid | None:
    """The grid of patches that so many tokens form on an image of this height and width; None if there is none."""
    for before in dict.fromkeys((prefix, 0, 1, 2)):
        count = tokens - before
        rows = round(math.sqrt(count * size[0] / size[1])) if count > 1 else 0
        if rows and count % rows == 0 and abs(rows / (count // rows) - size[0] / size[1]) < 0.5 / (count // rows):
            return Grid(before, rows, count // rows)
    return None


def usual_patch_size(size: Sequence[int]) -> int:
    """The size of a patch where the network does not decide it, for images of this height and width."""
    side = min(size)
    return 16 if side >= 128 else 8 if side >= 64 else min(4, side)


def default_patch_size(model: nn.Module, x: Tensor) -> int:
    """The network's own size of a patch for images like `x` (N×C×H×W), or the usual one where it has none."""
    return own_patch_size(model, x) or usual_patch_size(x.shape[2:])


def own_patch_size(model: nn.Module, x: Tensor) -> int | None:
    """The network's own size of a patch for images like `x` (N×C×H×W); None where it has no patches of its own.

    One grey image passes the network, once for each size of images. Weights, flags and random state stay the same.
    """
    size = (x.shape[2], x.shape[3])
    known = _MEASURED.setdefault(model, {})
    if size not in known:
        known[size] = _measure(model, x)
    return known[size]


def patch_size_of(taps: Taps, blocks: Sequence[Block], size: Size) -> int | None:
    """The rule above, from the features of one pass and the blocks that they belong to."""
    kinds = {block.name: {attending.kind for attending in block.attending} for block in blocks}
    sides: dict[bool, list[int | None]] = {True: [], False: []}  # of blocks that attend, and of all others
    for name, feature in zip(taps.feature_names, taps.features, strict=True):
        if kinds[name] != {"class"}:
            grid = find_grid(feature.shape[1], taps.prefix_tokens, size)
            sides[bool(kinds[name])].append(grid.patch_size(size) if grid else None)
    attending, others = sides[True], sides[False]
    alike = set(attending or others)
    if len(alike) == 1 and len(attending) > len(others):
        return alike.pop()
    if not attending:  # maps as fine as the pixels are not patches
        side = alike.pop() if len(alike) == 1 else None
        return side if side != 1 else None
    usual = usual_patch_size(size)
    fitting = sorted(side for side in {*attending, *others} if side is not None)
    return min(fitting, key=lambda side: abs(math.log(side / usual)), default=None)


def _measure(model: nn.Module, x: Tensor) -> int | None:
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper: the module itself sees the hooks of a tap
    size, blocks = (x.shape[2], x.shape[3]), find_blocks(model)
    if not blocks:
        return None
    mend = f"say how many pixels wide a patch is: patch_size={usual_patch_size(size)}"
    if is_compiled(model):
        raise UserError(f"the tokens of a compiled model cannot be counted; {mend}")
    tensor = next(model.parameters(), x)
    grey = torch.full((1, *x.shape[1:]), 0.5, dtype=x.dtype, device=tensor.device)
    devices = [tensor.device] if tensor.device.type == "cuda" else []
    unchanged = torch.random.fork_rng(devices=devices)
    with evaluating(model), unchanged, torch.no_grad(), tap(model, attention=False) as taps:
        model(grey)
    side = patch_size_of(taps, blocks, size)
    if side is None and any(block.attending for block in blocks):
        raise UserError(
            f"the tokens of {class_name(model)} are not square patches of a {size[0]}×{size[1]} image; {mend}"
        )
    return side
