"""The largest eigenvalues of a symmetric matrix from products with vectors (Lanczos), and products with the Hessian."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from hardtack.analysis.image_cache import ImageCache
from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.errors import UserError

Product = Callable[[Tensor], Tensor]
_MOST_KEPT = 1 << 31  # bytes of vectors that Lanczos may store on disk


@dataclass(frozen=True, kw_only=True)
class Eigenvalues:
    """The largest eigenvalues in descending order, and the lowest. A true eigenvalue lies within the error of each."""

    values: np.ndarray
    errors: np.ndarray
    lowest: float
    lowest_error: float
    products: int
    converged: bool


def lanczos(
    product: Product,
    start: Callable[[int], Tensor],
    *,
    top: int,
    tolerance: float = 1e-3,
    most: int = 100,
    folder: Path | None = None,
) -> Eigenvalues:
    """The `top` largest eigenvalues of a symmetric matrix, from at most `most` products with it.

    `start(i)` returns random vectors: number 0 is the start vector; further ones are used for restarts, if the Krylov
    space is exhausted before enough eigenvalues have converged. (A multiple eigenvalue may be found only once.)
    All vectors are kept orthogonal to each other. The error of a Ritz value is the norm of its residual; the iteration
    ends when the errors of the `top` values are below `tolerance` times the largest |eigenvalue|. With `folder` the
    state is stored there, so that a killed computation can be resumed.
    """
    first = start(0)
    size = len(first)
    if folder is not None and 4 * size * most > _MOST_KEPT:
        folder = None
    state = _LanczosState.read(folder, first)
    spectrum = None
    for products in range(len(state.diagonal) + 1, min(most, size) + 1):
        image = product(state.basis[-1])
        state.diagonal.append(float(state.basis[-1] @ image))
        rest = _orthogonal(image, state.basis)
        state.beside.append(float(rest.norm()))
        spectrum = _ritz(state.diagonal, state.beside, top, tolerance, products, of=size)
        if spectrum.converged or products == size:
            break
        if state.beside[-1] <= 1e-6 * max(
            map(abs, [*state.diagonal, *state.beside])
        ):  # the Krylov space is exhausted: restart
            state.restarts += 1
            rest, state.beside[-1] = _orthogonal(start(state.restarts), state.basis), 0.0
        state.basis.append(rest / rest.norm())
        state.write(folder)
    return spectrum or _ritz(state.diagonal, state.beside, top, tolerance, len(state.diagonal), of=size)


@dataclass
class _LanczosState:
    """The state of Lanczos: orthonormal vectors and a tridiagonal matrix."""

    basis: list[Tensor]
    diagonal: list[float]
    beside: list[float]
    restarts: int = 0

    @classmethod
    def read(cls, folder: Path | None, first: Tensor) -> _LanczosState:
        """The stored state, or the initial one."""
        state = cls([first / first.norm()], [], [])
        while folder is not None and (file := folder / f"lanczos-{len(state.basis)}.npz").exists():
            arrays = read_arrays(file)
            state.basis.append(torch.from_numpy(arrays["vector"]).to(first))
            state.diagonal, state.beside = arrays["diagonal"].tolist(), arrays["beside"].tolist()
            state.restarts = int(arrays["restarts"])
        return state

    def write(self, folder: Path | None) -> None:
        if folder is None:
            return
        arrays = {"vector": self.basis[-1].cpu().numpy(), "diagonal": np.array(self.diagonal),
                  "beside": np.array(self.beside), "restarts": np.array(self.restarts)}  # fmt: skip
        write_arrays(folder / f"lanczos-{len(self.basis) - 1}.npz", arrays, compressed=False)


def _orthogonal(vector: Tensor, basis: Sequence[Tensor]) -> Tensor:
    """The part of the vector orthogonal to the basis. It is projected twice, because rounding errors would grow."""
    vector = vector.clone()
    for _ in range(2):
        for earlier in basis:
            vector.sub_(earlier, alpha=float(earlier @ vector))
    return vector


def _ritz(
    diagonal: list[float], beside: list[float], top: int, tolerance: float, products: int, *, of: int
) -> Eigenvalues:
    matrix = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(matrix)
    errors = np.zeros_like(values) if products == of else np.abs(beside[-1] * vectors[-1])
    wanted = min(top, of)
    scale = np.abs(values).max()
    converged = len(values) >= wanted and bool((errors[-wanted:] <= tolerance * scale).all())
    return Eigenvalues(
        values=values[::-1][:wanted], errors=errors[::-1][:wanted], lowest=float(values[0]),
        lowest_error=float(errors[0]), products=products, converged=converged,
    )  # fmt: skip


class Hessian:
    """Gradient and Hessian of the mean loss over images with respect to all weights, as one vector.

    `model` must be a copy, because its weights are set to require gradients.
    """

    def __init__(self, model: nn.Module, images: ImageCache) -> None:
        self.model, self.images = model, images
        self.weights = [weight for weight in model.parameters() if weight.is_floating_point()]
        if not self.weights:
            raise UserError("this model has no weights, so its loss has no curvature")
        for weight in self.weights:
            weight.requires_grad_(True)

    def gradient(self) -> Tensor:
        total = torch.zeros(sum(self.sizes), device=self.images.device)
        for x, y, _ in self.images:
            total += _joined(torch.autograd.grad(self._loss(x, y), self.weights, materialize_grads=True))
        return total

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The contribution of these images to the mean loss over all images."""
        loss = F.cross_entropy(self.model(x).float(), y, reduction="sum") / len(self.images)
        if not loss.requires_grad:
            raise UserError(
                "this model passes no gradient to its weights (no_grad, or detach): use the analysis landscape"
            )
        return loss

    def product(self, vector: Tensor) -> Tensor:
        """The Hessian times a vector: the derivative of the gradient in its direction."""
        along = [part.view_as(w) for part, w in zip(vector.split(self.sizes), self.weights, strict=True)]
        total = torch.zeros_like(vector)
        for x, y, _ in self.images:
            with twice_differentiable():
                slopes = torch.autograd.grad(self._loss(x, y), self.weights, create_graph=True, materialize_grads=True)
                pairs = [(g, v) for g, v in zip(slopes, along, strict=True) if g.requires_grad]
                if pairs:
                    outputs, with_these = zip(*pairs, strict=True)
                    total += _joined(torch.autograd.grad(outputs, self.weights, with_these, materialize_grads=True))
        return total

    @property
    def sizes(self) -> list[int]:
        return [weight.numel() for weight in self.weights]

    @contextlib.contextmanager
    def displaced(self, vector: Tensor) -> Iterator[None]:
        """A context in which the vector is added to the weights; afterwards the weights are restored exactly."""
        before = [weight.detach().clone() for weight in self.weights]
        with torch.no_grad():
            for weight, part in zip(self.weights, vector.split(self.sizes), strict=True):
                weight.add_(part.view_as(weight))
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, old in zip(self.weights, before, strict=True):
                    weight.copy_(old)


@contextlib.contextmanager
def twice_differentiable() -> Iterator[None]:
    """Use PyTorch's math backend for attention, because fused attention has no second derivative."""
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    except RuntimeError as error:
        if "derivative" not in str(error) and "differentiable" not in str(error):
            raise
        text = str(error).splitlines()[0]
        raise UserError(
            f"the loss of this model cannot be differentiated twice ({text}); use the analysis landscape"
        ) from None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])
