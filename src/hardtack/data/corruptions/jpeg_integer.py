"""What a JPEG codec does to pixels, as tensor operations: libjpeg's integer arithmetic without the entropy coding.

For images that are on a GPU: the codec would take them to the host one by one. Every step of the baseline codec with
its default settings (4:2:0, "slow" integer DCT, "fancy" chroma upsampling) is integer arithmetic with a stated
rounding, and what follows the quantisation up to the file and back loses nothing, so the result is the codec's to the
last bit. An 8-point DCT of it rounds only at its end: it is a product with a matrix of whole numbers, exact in float64.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

# ITU-T T.81, tables K.1 and K.2
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99), (18, 21, 26, 66, 99, 99, 99, 99), (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99), *(((99,) * 8,) * 4),
)  # fmt: skip
# cosines times √8·2^13 as the "slow" DCT (Loeffler, Ligtenberg and Moschytz 1989) has them: a coefficient is a sum of
# constants that are each rounded to 13 bits, so that equal cosines can differ by 1
_DCT = (
    (8192, 8192, 8192, 8192),
    (11363, 9633, 6437, 2260),
    (10703, 4433, -4433, -10703),
    (9633, -2259, -11362, -6436),
    (8192, -8192, -8192, 8192),
    (6437, -11362, 2261, 9633),
    (4433, -10704, 10704, -4433),
    (2260, -6436, 9633, -11363),
)
_FRACTION = 13
_EXTRA = 2  # bits kept between the two passes of a DCT


def jpeg_round_trip(levels: Tensor, quality: int) -> Tensor:
    """N×3×H×W int32 grey levels, coded at a quality (1–100) and decoded."""
    height, width = levels.shape[-2:]
    luma, blue, red = _to_ycc(levels)
    luma = _code(luma, _table(_LUMA, quality, levels.device))[..., :height, :width]
    chroma = torch.stack([_halve(blue), _halve(red)], dim=1)
    chroma = _code(chroma, _table(_CHROMA, quality, levels.device))[..., : (height + 1) // 2, : (width + 1) // 2]
    blue, red = (_double(chroma) - 128)[..., :height, :width].unbind(1)
    return _to_rgb(luma, blue, red)


def _to_ycc(levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    red, green, blue = levels.unbind(1)
    middle = (128 << 16) + (1 << 15) - 1
    luma = (19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16
    return (
        luma,
        (-11059 * red - 21709 * green + 32768 * blue + middle) >> 16,
        (32768 * red - 27439 * green - 5329 * blue + middle) >> 16,
    )


def _to_rgb(luma: Tensor, blue: Tensor, red: Tensor) -> Tensor:
    half = 1 << 15
    channels = (
        luma + ((91881 * red + half) >> 16),
        luma + ((half - 22554 * blue - 46802 * red) >> 16),
        luma + ((116130 * blue + half) >> 16),
    )
    return torch.stack(channels, dim=1).clamp_(0, 255)


def _halve(plane: Tensor) -> Tensor:
    """Means of 2×2 pixels, N×⌈H/2⌉×(whole blocks); a half is rounded down and up in turns along a row."""
    height, width = plane.shape[-2:]
    plane = _repeat_edge(plane, down=height % 2, right=-width % 16)
    total = plane[:, 0::2, 0::2] + plane[:, 0::2, 1::2] + plane[:, 1::2, 0::2] + plane[:, 1::2, 1::2]
    bias = torch.arange(total.shape[-1], device=plane.device, dtype=plane.dtype) % 2 + 1
    return (total + bias) >> 2


def _double(plane: Tensor) -> Tensor:
    """Twice as many rows and columns: 3/4 of the nearer sample and 1/4 of the next, in each direction."""
    if plane.shape[-1] <= 2:  # the codec does not interpolate so few columns
        return plane.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)
    padded = _repeat_edge(plane, up=1, down=1)
    near = 3 * plane
    plane = torch.stack([near + padded[..., :-2, :], near + padded[..., 2:, :]], dim=-2).flatten(-3, -2)
    padded = _repeat_edge(plane, left=1, right=1)
    near = 3 * plane
    return torch.stack([near + padded[..., :-2] + 8, near + padded[..., 2:] + 7], dim=-1).flatten(-2) >> 4


def _repeat_edge(plane: Tensor, *, left: int = 0, right: int = 0, up: int = 0, down: int = 0) -> Tensor:
    if not (left or right or up or down):
        return plane
    rows = torch.arange(-up, plane.shape[-2] + down, device=plane.device).clamp(0, plane.shape[-2] - 1)
    columns = torch.arange(-left, plane.shape[-1] + right, device=plane.device).clamp(0, plane.shape[-1] - 1)
    return plane.index_select(-2, rows).index_select(-1, columns)


def _code(plane: Tensor, table: Tensor) -> Tensor:
    """…×H×W samples to whole blocks of 8×8, transformed, quantised by `table` (8×8) and back, held in 0 … 255."""
    plane = _repeat_edge(plane, right=-plane.shape[-1] % 8, down=-plane.shape[-2] % 8)
    *first, height, width = plane.shape
    blocks = plane.view(-1, height // 8, 8, width // 8, 8).transpose(2, 3).to(torch.float64) - 128
    matrix = _dct_matrix(plane.device)
    blocks = _pass(blocks, matrix.T, _FRACTION - _EXTRA)  # rows, then columns
    blocks = _pass(blocks.mT, matrix.T, _FRACTION + _EXTRA).mT
    steps = 8 * table  # the transform's scale is 8
    blocks = ((blocks.abs() + steps / 2) / steps).floor() * blocks.sign() * table
    blocks = _pass(blocks.mT, matrix, _FRACTION - _EXTRA).mT  # columns, then rows
    blocks = _pass(blocks, matrix, _FRACTION + _EXTRA + 3)
    samples = (blocks + 128).clamp_(0, 255).to(torch.int32)
    return samples.transpose(2, 3).reshape(*first, height, width)


def _pass(blocks: Tensor, matrix: Tensor, shift: int) -> Tensor:
    return (blocks @ matrix).add_(2.0 ** (shift - 1)).mul_(2.0**-shift).floor_()


@lru_cache(maxsize=64)
def _table(base: tuple[tuple[int, ...], ...], quality: int, device: torch.device) -> Tensor:
    """8×8 float64 steps of the quantisation at a quality."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    rows = [[min(255, max(1, (step * percent + 50) // 100)) for step in row] for row in base]
    return torch.tensor(rows, dtype=torch.float64, device=device)


@lru_cache(maxsize=8)
def _dct_matrix(device: torch.device) -> Tensor:
    """8×8 float64 of whole numbers: row k is the k-th cosine. Even rows are mirrored, odd ones mirrored and negated."""
    rows = [(*half, *(value if row % 2 == 0 else -value for value in reversed(half))) for row, half in enumerate(_DCT)]
    return torch.tensor(rows, dtype=torch.float64, device=device)
