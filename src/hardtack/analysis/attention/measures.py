"""Numbers of attention maps. A map is N×heads×windows×queries×keys, rows sum to one; numbers are per image and head.
Rows of queries that lie beyond the image are NaN, and do not count.

Cosine similarity of clean and disturbed attention is Guo, Stutz and Schiele's ("Improving robustness of vision
transformers by reducing sensitivity to patch corruptions", 2023); they do not say whether of the whole map or of each
query's row, so both are here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between two maps, each as one long vector: N×heads.

    In float64, an image at a time: of ten million nearly equal numbers float32 finds one map 1 % off itself.
    """
    return torch.stack([_similarity(*pair) for pair in zip(a, b, strict=True)])


def _similarity(a: Tensor, b: Tensor) -> Tensor:
    first, second = (weights.nan_to_num(0.0).flatten(1).double() for weights in (a, b))
    return F.cosine_similarity(first, second, dim=-1).clamp(-1, 1).to(a.dtype)


def row_similarity(a: Tensor, b: Tensor) -> Tensor:
    """The same for each query's row, then the mean over queries: N×heads. A map of one column is a single row."""
    if a.shape[-1] == 1:
        a, b = a.transpose(-1, -2), b.transpose(-1, -2)
    return F.cosine_similarity(a, b, dim=-1).clamp(-1, 1).nanmean(dim=(2, 3))


def entropy(weights: Tensor) -> Tensor:
    """Of a query's row as a share of the most it can be, mean over queries: 0 looks at one key, 1 at all alike."""
    keys = weights.shape[-1] - weights[..., :1].isnan().sum(dim=-2, keepdim=True)  # of a window, those on the image
    most = keys[..., 0].clamp_min(2).to(weights.dtype).log()
    return (torch.special.entr(weights).sum(dim=-1) / most).nanmean(dim=(2, 3))


def distance(weights: Tensor, apart: Tensor, *, first_query: int, first_key: int) -> Tensor:
    """How far away, on the mean, a patch looks: N×heads.

    `apart` queries×keys: how far they are from each other. What lies before the first patch (class token, registers) is
    left out.
    """
    between = weights[..., first_query:, first_key:]
    seen = (between * apart).sum(dim=-1) / between.sum(dim=-1).clamp_min(1e-12)
    return seen.nanmean(dim=(2, 3))


def distances(queries: tuple[int, int], keys: tuple[int, int], size: tuple[float, float]) -> Tensor:
    """Between the middles of the cells of two grids (rows, columns) over one area of this height and width."""
    return torch.cdist(_middles(queries, size), _middles(keys, size))


def _middles(grid: tuple[int, int], size: tuple[float, float]) -> Tensor:
    rows, columns = ((torch.arange(n, dtype=torch.float32) + 0.5) * s / n for n, s in zip(grid, size, strict=True))
    return torch.cartesian_prod(rows, columns).reshape(-1, 2)
