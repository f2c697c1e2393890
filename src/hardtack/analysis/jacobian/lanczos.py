"""The largest singular values by Golub and Kahan's bidiagonalisation (1965), all images of a batch at once.

From a random unit vector v₁, J is brought to J V = U B with orthonormal U, V and a bidiagonal B, one product with J
and one with Jᵀ at a time. The singular values of B approach the largest of J from below. With B = P S Qᵀ each σᵢ has
J(Vqᵢ) = σᵢ Upᵢ exactly and ‖Jᵀ(Upᵢ) − σᵢ Vqᵢ‖ = βⱼ|pᵢ(j)|, the residual r: a true singular value lies within r of σᵢ,
and the error itself is about r²/gap. Every image has its own stop, so that it does not matter who shares its batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hardtack import randomness
from hardtack.analysis.jacobian.products import Operator, Transposed

_NOTHING = 3e-6  # of the largest coefficient: below it a direction is rounding, not signal


@dataclass
class Spectrum:
    """Of every image: `sigma` N×top, `error` N×top (residuals over σ₁), `products` and `converged` N.

    `left` and `right`: N×top×outputs and N×top×inputs, where asked for.
    """

    sigma: np.ndarray
    error: np.ndarray
    products: np.ndarray
    converged: np.ndarray
    left: np.ndarray | None = None
    right: np.ndarray | None = None

    @classmethod
    def empty(cls, count: int, top: int) -> Spectrum:
        return cls(
            np.zeros((count, top)), np.full((count, top), np.inf), np.zeros(count, int), np.zeros(count, bool)
        )  # fmt: skip


def lanczos(
    operator: Operator, keys: Tensor, *, top: int = 1, tolerance: float = 1e-3, most: int = 100, vectors: bool = False
) -> Spectrum:
    """`keys` (N) begin each image's iteration; it ends when all residuals are at most `tolerance`·σ₁, or after `most`
    products. The iteration starts on the smaller side, so that a map to ten logits is exact after twenty products."""
    turned = operator.outputs < operator.inputs
    a: Operator = Transposed(operator) if turned else operator
    steps = max(1, min(most // 2, a.inputs))
    top = min(top, steps)
    found = Spectrum.empty(a.count, top)
    right = torch.zeros(a.count, steps + 1, a.inputs, device=a.device)
    left = torch.zeros(a.count, steps, a.outputs, device=a.device)
    alpha, beta = torch.zeros(2, a.count, steps, device=a.device)
    right[:, 0] = _unit(randomness.normal(keys, (a.inputs,)))
    if vectors:
        found.right, found.left = (np.zeros((a.count, top, size), np.float32) for size in (a.inputs, a.outputs))
    scale = torch.zeros(a.count, device=a.device)
    for j in range(steps):
        pushed = a.times(right[:, j])
        left[:, j], alpha[:, j] = _next(pushed, left[:, :j], scale, randomness.fold(keys, 1, j))
        scale = torch.maximum(scale, alpha[:, j])
        pulled = a.transposed(left[:, j])
        right[:, j + 1], beta[:, j] = _next(pulled, right[:, : j + 1], scale, randomness.fold(keys, 2, j))
        scale = torch.maximum(scale, beta[:, j])
        if _is_check(j + 1, steps, top) and _settle(found, alpha, beta, left, right, j + 1, top, tolerance):
            break
    if turned:
        found.left, found.right = found.right, found.left
    return found


def _is_check(j: int, steps: int, top: int) -> bool:
    """Looking costs a decomposition on the host: at every second step, later every fourth."""
    return j >= top and (j == steps or j <= 4 or j % (2 if j <= 20 else 4) == 0)


def _settle(
    found: Spectrum, alpha: Tensor, beta: Tensor, left: Tensor, right: Tensor, j: int, top: int, tolerance: float
) -> bool:
    """Enter what B says of the images that have not stopped yet; whether all have now."""
    rows = np.flatnonzero(~found.converged)
    if not len(rows):
        return True
    a, b = (coefficient[:, :j].double().cpu().numpy()[rows] for coefficient in (alpha, beta))
    known = np.isfinite(a).all(1) & np.isfinite(b).all(1)
    bidiagonal = np.zeros((len(rows), j, j))
    bidiagonal[:, np.arange(j), np.arange(j)] = a
    bidiagonal[:, np.arange(j - 1), np.arange(1, j)] = b[:, :-1]
    p, sigma, q = np.linalg.svd(np.where(known[:, None, None], bidiagonal, 0.0))
    largest = np.maximum(sigma[:, :1], np.finfo(float).tiny)
    error = b[:, -1:] * np.abs(p[:, -1, :top]) / largest
    found.sigma[rows] = np.where(known[:, None], sigma[:, :top], np.nan)
    found.error[rows] = np.where(known[:, None], error, np.inf)
    found.products[rows] = 2 * j
    found.converged[rows] = (error <= tolerance).all(1) & known
    if found.left is not None and found.right is not None:
        for row, weights_left, weights_right in zip(rows, p[:, :, :top], q[:, :top], strict=True):
            found.left[row] = (
                torch.as_tensor(weights_left.T, dtype=left.dtype).to(left.device).matmul(left[row, :j]).cpu()
            )
            found.right[row] = (
                torch.as_tensor(weights_right, dtype=left.dtype).to(left.device).matmul(right[row, :j]).cpu()
            )
    return bool(found.converged.all())


def _next(vector: Tensor, basis: Tensor, scale: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """What of a vector is new, at length one, and how long it was. Where nothing is new, a random direction that is."""
    vector = _apart(vector, basis)
    length = vector.norm(dim=1)
    gone = length <= _NOTHING * scale
    if bool(gone.any()):
        other = _apart(_unit(randomness.normal(keys, vector.shape[1:])), basis)
        other = torch.where(other.norm(dim=1, keepdim=True) > 1e-4, other, torch.zeros_like(other))
        vector, length = torch.where(gone[:, None], other, vector), torch.where(gone, 0.0, length)
    return _unit(vector), length


def _apart(vector: Tensor, basis: Tensor) -> Tensor:
    """The part of N×n that is orthogonal to each N×j×n; twice, for once leaves rounding."""
    for _ in range(2 if basis.shape[1] else 0):
        shares = torch.bmm(basis, vector[:, :, None])
        vector = vector - torch.bmm(basis.transpose(1, 2), shares)[:, :, 0]
    return vector


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm(dim=1, keepdim=True).clamp_min(torch.finfo(vector.dtype).tiny)
