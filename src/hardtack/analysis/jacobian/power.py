"""The largest singular values by block power iteration: slower than Lanczos, but reliable for multiple singular values.

A block V of orthonormal vectors is multiplied by J and by Jᵀ and made orthonormal again, until it converges. The small
matrix between U and V gives σ, u and v with Jᵀu = σv exactly; the residual is ‖Jv − σu‖.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hardtack.analysis.jacobian.lanczos import SingularValues
from hardtack.analysis.jacobian.products import Operator
from hardtack.base import randomness

_SPARE = 2  # additional vectors, so that the last requested value converges


def power(
    operator: Operator, keys: Tensor, *, top: int = 1, tolerance: float = 1e-3, most: int = 100, vectors: bool = False
) -> SingularValues:
    """Arguments as for `lanczos`. An iteration costs a product with J and one with Jᵀ per vector of the block."""
    width = min(top + _SPARE, operator.inputs, operator.outputs)
    top = min(top, width)
    spectrum = SingularValues.empty(operator.count, top)
    if vectors:
        spectrum.right = np.zeros((operator.count, top, operator.inputs), np.float32)
        spectrum.left = np.zeros((operator.count, top, operator.outputs), np.float32)
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
        _enter(spectrum, sigma, error, u, v, (2 * turn + 1) * width, tolerance)
        if spectrum.converged.all():
            break
    return spectrum


def _enter(
    spectrum: SingularValues, sigma: Tensor, error: Tensor, u: Tensor, v: Tensor, products: int, tolerance: float
) -> None:
    """Update the values of the images that have not converged yet."""
    rows, top = np.flatnonzero(~spectrum.converged), spectrum.sigma.shape[1]
    finite = torch.isfinite(error).all(dim=1, keepdim=True)
    spectrum.sigma[rows] = torch.where(finite, sigma, torch.nan)[:, :top].double().cpu().numpy()[rows]
    spectrum.error[rows] = torch.where(finite, error, torch.inf)[:, :top].double().cpu().numpy()[rows]
    spectrum.products[rows] = products
    spectrum.converged[rows] = (spectrum.error[rows] <= tolerance).all(1)
    if spectrum.left is not None and spectrum.right is not None:
        spectrum.left[rows] = u[:, :, :top].transpose(1, 2).cpu().numpy()[rows]
        spectrum.right[rows] = v[:, :, :top].transpose(1, 2).cpu().numpy()[rows]


def _each(product: object, block: Tensor) -> Tensor:
    """The product with every column of N×n×width."""
    assert callable(product)
    return torch.stack([product(block[:, :, column].contiguous()) for column in range(block.shape[2])], dim=2)


def _orthonormal(block: Tensor) -> Tensor:
    return torch.linalg.qr(block)[0]
