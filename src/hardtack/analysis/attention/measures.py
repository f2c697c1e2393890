"""Measures of attention maps. A map is N×heads×windows×queries×keys, and its rows sum to one.

Every measure is computed per image and head. Rows of queries outside the image are NaN and are ignored.

Cosine similarity of clean and disturbed attention is Guo, Stutz and Schiele's ("Improving robustness of vision
transformers by reducing sensitivity to patch corruptions", 2023). The paper does not state whether it is computed for
the whole map or for each query's row; both are available here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between two maps, each as one long vector: N×heads.

    It is computed in float64, one image at a time: for ten million nearly equal numbers, float32 gives a similarity of
    a map with itself that is wrong by 1 %.
    """
    return torch.stack([_similarity(*pair) for pair in zip(a, b, strict=True)])


def _similarity(a: Tensor, b: Tensor) -> Tensor:
    first, second = (weights.nan_to_num(0.0).flatten(1).double() for weights in (a, b))
    return F.cosine_similarity(first, second, dim=-1).clamp(-1, 1).to(a.dtype)


def row_similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity of each query's row, mean over queries: N×heads. A map of one column is a single row."""
    if a.shape[-1] == 1:
        a, b = a.transpose(-1, -2), b.transpose(-1, -2)
    return F.cosine_similarity(a, b, dim=-1).clamp(-1, 1).nanmean(dim=(2, 3))


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each query's row divided by its maximum, mean over queries. 0: all on one key; 1: all keys equal."""
    keys = weights.shape[-1] - weights[..., :1].isnan().sum(
        dim=-2, keepdim=True
    )  # in a window, the keys inside the image
    most = keys[..., 0].clamp_min(2).to(weights.dtype).log()
    return (torch.special.entr(weights).sum(dim=-1) / most).nanmean(dim=(2, 3))


def distance(weights: Tensor, apart: Tensor, *, first_query: int, first_key: int) -> Tensor:
    """The mean distance between a query and the keys it attends to, weighted by attention: N×heads.

    `apart` (queries×keys) are the distances. Tokens before the first patch (class token, registers) are left out.
    """
    between = weights[..., first_query:, first_key:]
    mean_distance = (between * apart).sum(dim=-1) / between.sum(dim=-1).clamp_min(1e-12)
    return mean_distance.nanmean(dim=(2, 3))


def distances(queries: tuple[int, int], keys: tuple[int, int], size: tuple[float, float]) -> Tensor:
    """Distances between the cell centres of two grids (rows, columns) over one area of this height and width."""
    return torch.cdist(_middles(queries, size), _middles(keys, size))


def _middles(grid: tuple[int, int], size: tuple[float, float]) -> Tensor:
    rows, columns = ((torch.arange(n, dtype=torch.float32) + 0.5) * s / n for n, s in zip(grid, size, strict=True))
    return torch.cartesian_prod(rows, columns).reshape(-1, 2)
