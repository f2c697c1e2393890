"""The largest eigenvalues of a matrix that is only known by its products: Lanczos, and the Hessian's products."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hardtack.analysis.landscape.loss import Losses
from hardtack.errors import UserError

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """Eigenvalues, the largest first, and the lowest; each is within its error of a true one."""

    values: np.ndarray
    errors: np.ndarray
    lowest: float
    lowest_error: float
    products: int
    converged: bool


def lanczos(
    product: Product, start: Callable[[int], Tensor], *, top: int, tolerance: float = 1e-3, most: int = 100
) -> Spectrum:
    """The `top` largest eigenvalues of a symmetric matrix, from at most `most` products with it.

    `start(i)` gives random vectors: the first to begin with, others should the products lead nowhere new before enough
    eigenvalues are found. (One that occurs several times, exactly, may be found once.) All vectors are kept orthogonal
    to each other; a Ritz value's error is the norm of its residual, and all is done when those of the `top` are below
    `tolerance` times the largest |eigenvalue|.
    """
    vector = start(0)
    basis, diagonal, beside = [vector / vector.norm()], list[float](), list[float]()
    restarts, spectrum = 0, None
    for products in range(1, min(most, len(vector)) + 1):
        image = product(basis[-1])
        diagonal.append(float(basis[-1] @ image))
        rest = _orthogonal(image, basis)
        beside.append(float(rest.norm()))
        spectrum = _ritz(diagonal, beside, top, tolerance, products, of=len(vector))
        if spectrum.converged or products == len(vector):
            break
        if beside[-1] <= 1e-6 * max(map(abs, [*diagonal, *beside])):  # nothing new from here
            restarts += 1
            rest, beside[-1] = _orthogonal(start(restarts), basis), 0.0
        basis.append(rest / rest.norm())
    assert spectrum is not None
    return spectrum


def _orthogonal(vector: Tensor, basis: Sequence[Tensor]) -> Tensor:
    """What of the vector is new; twice, because once leaves rounding errors that grow."""
    vector = vector.clone()
    for _ in range(2):
        for known in basis:
            vector.sub_(known, alpha=float(known @ vector))
    return vector


def _ritz(
    diagonal: list[float], beside: list[float], top: int, tolerance: float, products: int, *, of: int
) -> Spectrum:
    matrix = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(matrix)
    errors = np.zeros_like(values) if products == of else np.abs(beside[-1] * vectors[-1])
    wanted = min(top, of)
    scale = np.abs(values).max()
    found = len(values) >= wanted and bool((errors[-wanted:] <= tolerance * scale).all())
    return Spectrum(
        values=values[::-1][:wanted], errors=errors[::-1][:wanted], lowest=float(values[0]),
        lowest_error=float(errors[0]), products=products, converged=found,
    )  # fmt: skip


class Hessian:
    """Gradient and Hessian of the mean loss over images with respect to all weights, which are one long vector here.

    `model` must be a copy: its weights want gradients from now on.
    """

    def __init__(self, model: nn.Module, losses: Losses, x: Tensor) -> None:
        self.model, self.losses, self.x = model, losses, x
        self.weights = [weight for weight in model.parameters() if weight.is_floating_point()]
        if not self.weights:
            raise UserError("this model has no weights, so its loss has no curvature")
        for weight in self.weights:
            weight.requires_grad_(True)

    def gradient(self) -> Tensor:
        total = torch.zeros((), device=self.x.device)
        for span in self.losses.spans():
            loss = self.losses.mean(self.model, self.x, span)
            total = total + _joined(torch.autograd.grad(loss, self.weights, materialize_grads=True))
        return total

    def product(self, vector: Tensor) -> Tensor:
        """Hessian times vector: the gradient, differentiated along it."""
        along = [part.view_as(w) for part, w in zip(vector.split(self.sizes), self.weights, strict=True)]
        total = torch.zeros_like(vector)
        for span in self.losses.spans():
            with twice_differentiable():
                loss = self.losses.mean(self.model, self.x, span)
                slopes = torch.autograd.grad(loss, self.weights, create_graph=True, materialize_grads=True)
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
        """Inside, the vector is added to the weights; afterwards they are what they were, to the bit."""
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
    """Fused attention has no second derivative; written out it has one."""
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    except RuntimeError as error:
        if "derivative" not in str(error) and "differentiable" not in str(error):
            raise
        text = str(error).splitlines()[0]
        raise UserError(f"the loss of this model cannot be differentiated twice ({text}); look at landscape") from None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])
