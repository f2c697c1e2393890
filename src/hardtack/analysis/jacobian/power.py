"""The largest singular values by block power iteration: slower than Lanczos, but equal values do not deceive it.

A block V of orthonormal vectors goes through J and back through Jᵀ, is made orthonormal again, and so on. Of the small
matrix in between one reads σ, u and v with Jᵀu = σv exactly; the residual is ‖Jv − σu‖.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hardtack.analysis.jacobian.lanczos import SingularValues
from hardtack.analysis.jacobian.products import Operator
from hardtack.base import randomness

_SPARE = 2  # vectors beyond those asked for: they make the last of these converge


def power(
    operator: Operator, keys: Tensor, *, top: int = 1, tolerance: float = 1e-3, most: int = 100, vectors: bool = False
) -> SingularValues:
    """As `lanczos`; every vector of the block costs a product each way."""
    width = min(top + _SPARE, operator.inputs, operator.outputs)
    top = min(top, width)
    found = SingularValues.empty(operator.count, top)
    if vectors:
        found.right = np.zeros((operator.count, top, operator.inputs), np.float32)
        found.left = np.zeros((operator.count, top, operator.outputs), np.float32)
    v = _orthonormal(randomness.normal(keys, (width, operator.inputs)).transpose(1, 2))
    pushed = _each(operator.times, v)
    for turn in range(1, max(1, (most // width - 1) // 2) + 1):
        u = _orthonormal(pushed)
        v, triangle = torch.linalg.qr(_each(operator.transposed, u))  # Jᵀu = v·triangle
        p, sigma, q = torch.linalg.svd(triangle.nan_to_num().transpose(1, 2))
        u, v = u @ p, v @ q.transpose(1, 2)
        pushed = _each(operator.times, v)
        residual = (pushed - u * sigma[:, None]).norm(dim=1)
        error = residual / sigma[:, :1].clamp_min(torch.finfo(sigma.dtype).tiny)
        _enter(found, sigma, error, u, v, (2 * turn + 1) * width, tolerance)
        if found.converged.all():
            break
    return found


def _enter(
    found: SingularValues, sigma: Tensor, error: Tensor, u: Tensor, v: Tensor, products: int, tolerance: float
) -> None:
    """What was found of the images that have not stopped yet."""
    rows, top = np.flatnonzero(~found.converged), found.sigma.shape[1]
    known = torch.isfinite(error).all(dim=1, keepdim=True)
    found.sigma[rows] = torch.where(known, sigma, torch.nan)[:, :top].double().cpu().numpy()[rows]
    found.error[rows] = torch.where(known, error, torch.inf)[:, :top].double().cpu().numpy()[rows]
    found.products[rows] = products
    found.converged[rows] = (found.error[rows] <= tolerance).all(1)
    if found.left is not None and found.right is not None:
        found.left[rows] = u[:, :, :top].transpose(1, 2).cpu().numpy()[rows]
        found.right[rows] = v[:, :, :top].transpose(1, 2).cpu().numpy()[rows]


def _each(product: object, block: Tensor) -> Tensor:
    """A product with every column of N×n×width."""
    assert callable(product)
    return torch.stack([product(block[:, :, column].contiguous()) for column in range(block.shape[2])], dim=2)


def _orthonormal(block: Tensor) -> Tensor:
    return torch.linalg.qr(block)[0]
