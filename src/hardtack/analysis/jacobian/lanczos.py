"""The largest singular values by Golub and Kahan's bidiagonalisation (1965), all images of a batch at once.

From a random unit vector v₁, J is brought to J V = U B with orthonormal U, V and a bidiagonal B, one product with J
and one with Jᵀ at a time. The singular values of B approach the largest of J from below. With B = P S Qᵀ each σᵢ has
J(Vqᵢ) = σᵢ Upᵢ exactly and ‖Jᵀ(Upᵢ) − σᵢ Vqᵢ‖ = βⱼ|pᵢ(j)|, the residual r: a true singular value lies within r of σᵢ,
and the error itself is about r²/gap. Every image has its own stopping criterion, so the batch does not change results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hardtack.analysis.jacobian.products import Operator, Transposed
from hardtack.base import randomness

_NOTHING = 3e-6  # share of the largest coefficient below which a direction is rounding error


@dataclass
class SingularValues:
    """For every image `sigma` and `error` (residuals divided by σ₁), N×top; `products` and `converged`, N.

    The singular vectors `left` (N×top×outputs) and `right` (N×top×inputs) are None unless requested.
    """

    sigma: np.ndarray
    error: np.ndarray
    products: np.ndarray
    converged: np.ndarray
    left: np.ndarray | None = None
    right: np.ndarray | None = None

    @classmethod
    def empty(cls, count: int, top: int) -> SingularValues:
        return cls(
            np.zeros((count, top)), np.full((count, top), np.inf), np.zeros(count, int), np.zeros(count, bool)
        )  # fmt: skip


@dataclass
class _State:
    """Bases and coefficients of the images that are still iterated; `rows` are their positions in the whole batch."""

    rows: np.ndarray
    keys: Tensor
    right: Tensor
    left: Tensor
    alpha: Tensor
    beta: Tensor
    scale: Tensor

    @classmethod
    def begin(cls, a: Operator, keys: Tensor, steps: int) -> _State:
        right = torch.zeros(a.count, steps + 1, a.inputs, device=a.device)
        right[:, 0] = _unit(randomness.normal(keys, (a.inputs,)))
        alpha, beta = torch.zeros(2, a.count, steps, device=a.device)
        return cls(
            rows=np.arange(a.count), keys=keys, right=right, alpha=alpha, beta=beta,
            left=torch.zeros(a.count, steps, a.outputs, device=a.device), scale=torch.zeros(a.count, device=a.device),
        )  # fmt: skip

    def only(self, kept: Tensor) -> _State:
        tensors = (value[kept] for value in (self.keys, self.right, self.left, self.alpha, self.beta, self.scale))
        return _State(self.rows[kept.cpu().numpy()], *tensors)

    def step(self, a: Operator, j: int) -> None:
        pushed = a.times(self.right[:, j])
        self.left[:, j], self.alpha[:, j] = _next(pushed, self.left[:, :j], self.scale, self._keys(1, j))
        self.scale = torch.maximum(self.scale, self.alpha[:, j])
        pulled = a.transposed(self.left[:, j])
        self.right[:, j + 1], self.beta[:, j] = _next(pulled, self.right[:, : j + 1], self.scale, self._keys(2, j))
        self.scale = torch.maximum(self.scale, self.beta[:, j])

    def _keys(self, side: int, j: int) -> Tensor:
        return randomness.fold(self.keys, side, j)


def lanczos(
    operator: Operator, keys: Tensor, *, top: int = 1, tolerance: float = 1e-3, most: int = 100, vectors: bool = False
) -> SingularValues:
    """The `top` largest singular values. `keys` (N) are the random keys of the start vectors.

    The iteration of an image ends when all residuals are at most `tolerance`·σ₁, or after `most` products. It starts on
    the smaller side: a map to ten logits is exact after twenty products. When half of the images have converged, the
    batch is reduced to the others.
    """
    turned = operator.outputs < operator.inputs
    a: Operator = Transposed(operator) if turned else operator
    steps = max(1, min(most // 2, a.inputs))
    top = min(top, steps)
    spectrum = SingularValues.empty(a.count, top)
    if vectors:
        spectrum.right, spectrum.left = (np.zeros((a.count, top, size), np.float32) for size in (a.inputs, a.outputs))
    state = _State.begin(a, keys, steps)
    for j in range(steps):
        state.step(a, j)
        if not _is_check(j + 1, steps, top):
            continue
        _settle(spectrum, state, j + 1, top, tolerance)
        going = np.flatnonzero(~spectrum.converged[state.rows])
        if not len(going):
            break
        if len(going) <= len(state.rows) // 2:
            kept = torch.as_tensor(going, device=a.device)
            a, state = a.only(kept), state.only(kept)
    if turned:
        spectrum.left, spectrum.right = spectrum.right, spectrum.left
    return spectrum


def _is_check(j: int, steps: int, top: int) -> bool:
    """Whether to check convergence, which costs an SVD on the CPU: at every second step, later at every fourth."""
    return j >= top and (j == steps or j <= 4 or j % (2 if j <= 20 else 4) == 0)


def _settle(spectrum: SingularValues, state: _State, j: int, top: int, tolerance: float) -> None:
    """Update the singular values and errors of the images that have not converged yet from their B."""
    here = np.flatnonzero(~spectrum.converged[state.rows])
    rows = state.rows[here]
    a, b = (coefficient[:, :j].double().cpu().numpy()[here] for coefficient in (state.alpha, state.beta))
    finite = np.isfinite(a).all(1) & np.isfinite(b).all(1)
    bidiagonal = np.zeros((len(rows), j, j))
    bidiagonal[:, np.arange(j), np.arange(j)] = a
    bidiagonal[:, np.arange(j - 1), np.arange(1, j)] = b[:, :-1]
    p, sigma, q = np.linalg.svd(np.where(finite[:, None, None], bidiagonal, 0.0))
    largest = np.maximum(sigma[:, :1], np.finfo(float).tiny)
    error = b[:, -1:] * np.abs(p[:, -1, :top]) / largest
    spectrum.sigma[rows] = np.where(finite[:, None], sigma[:, :top], np.nan)
    spectrum.error[rows] = np.where(finite[:, None], error, np.inf)
    spectrum.products[rows] = 2 * j
    spectrum.converged[rows] = (error <= tolerance).all(1) & finite
    if spectrum.left is not None and spectrum.right is not None:
        for row, place, of_left, of_right in zip(rows, here, p[:, :, :top], q[:, :top], strict=True):
            spectrum.left[row] = _combined(of_left.T, state.left[place, :j])
            spectrum.right[row] = _combined(of_right, state.right[place, :j])


def _combined(weights: np.ndarray, basis: Tensor) -> np.ndarray:
    """The linear combinations (top×n) of a basis (j×n) with weights (top×j)."""
    return (torch.as_tensor(weights, dtype=basis.dtype, device=basis.device) @ basis).cpu().numpy()


def _next(vector: Tensor, basis: Tensor, scale: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The part of a vector orthogonal to the basis, normalised, and its norm; a random direction if it is zero."""
    vector = _apart(vector, basis)
    length = vector.norm(dim=1)
    gone = length <= _NOTHING * scale
    if bool(gone.any()):
        other = _apart(_unit(randomness.normal(keys, vector.shape[1:])), basis)
        other = torch.where(other.norm(dim=1, keepdim=True) > 1e-4, other, torch.zeros_like(other))
        vector, length = torch.where(gone[:, None], other, vector), torch.where(gone, 0.0, length)
    return _unit(vector), length


def _apart(vector: Tensor, basis: Tensor) -> Tensor:
    """The part of vectors (N×n) orthogonal to bases (N×j×n). It is projected twice to remove rounding errors."""
    for _ in range(2 if basis.shape[1] else 0):
        shares = torch.bmm(basis, vector[:, :, None])
        vector = vector - torch.bmm(basis.transpose(1, 2), shares)[:, :, 0]
    return vector


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm(dim=1, keepdim=True).clamp_min(torch.finfo(vector.dtype).tiny)
