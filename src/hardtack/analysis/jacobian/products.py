"""Products with a Jacobian without storing the matrix: J v and Jᵀu, one vector for each image of a batch.

Jᵀu is a backward pass. It is linear in u, and its derivative with respect to u is J: a second backward pass through the
graph of the first one gives J v without running the network again (three times as fast as forward-mode AD).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from hardtack.base.errors import UserError

Trace = Callable[[Tensor], tuple[Tensor, Tensor]]


class Operator(Protocol):
    """N linear maps, one for each image, from `inputs` to `outputs` values."""

    count: int
    inputs: int
    outputs: int
    device: torch.device

    def times(self, v: Tensor) -> Tensor:
        """J v: N×outputs of N×inputs."""
        ...

    def transposed(self, u: Tensor) -> Tensor:
        """Jᵀu: N×inputs of N×outputs."""
        ...

    def only(self, rows: Tensor) -> Operator:
        """The operator of only these images."""
        ...


class Jacobian:
    """The derivative of a piece at these images; with `bare`, minus the identity.

    `trace(images)` returns x, a leaf, and y. The first axis of both are the images, or several rows of each image. The
    y of an image must depend on its own x only.
    """

    def __init__(self, trace: Trace, images: Tensor, *, name: str = "this piece", bare: bool = False) -> None:
        self.trace, self.images, self.count, self.name, self.bare = trace, images, len(images), name, bare
        self.x, self.y = x, y = trace(images)
        count = self.count
        self.inputs, self.outputs, self.device = x.numel() // count, y.numel() // count, x.device
        if not y.requires_grad:
            raise UserError(
                f"{name} does not depend on its input, or its graph is cut (no_grad, detach): it has no Jacobian"
            )
        self._u = torch.zeros_like(y, requires_grad=True)
        with _named(name):
            (self._pulled,) = torch.autograd.grad(
                y, x, self._u, create_graph=True, retain_graph=True, materialize_grads=True
            )

    def times(self, v: Tensor) -> Tensor:
        with _named(self.name):
            (out,) = torch.autograd.grad(
                self._pulled, self._u, v.reshape(self.x.shape), retain_graph=True, materialize_grads=True
            )
        out = out.reshape(self.count, -1)
        return out - v if self.bare else out

    def transposed(self, u: Tensor) -> Tensor:
        (out,) = torch.autograd.grad(self.y, self.x, u.reshape(self.y.shape), retain_graph=True, materialize_grads=True)
        out = out.reshape(self.count, -1)
        return out - u if self.bare else out

    def only(self, rows: Tensor) -> Jacobian:
        return Jacobian(self.trace, self.images[rows], name=self.name, bare=self.bare)

    def check(self) -> None:
        """Check (J v)·u = v·(Jᵀu). It fails where an operation has no second derivative and autograd returns zero."""
        v, u = (torch.linspace(-1, 1, size, device=self.device).cos().repeat(self.count, 1) for size in self._sizes)
        pushed = self.times(v)
        gap = (pushed * u).sum(dim=1) - (v * self.transposed(u)).sum(dim=1)
        size = torch.maximum(pushed.norm(dim=1) * u.norm(dim=1), gap.abs())
        if bool((gap.abs() > 0.01 * size).any()):
            raise UserError(f"{self.name} has an operation without a second derivative: J v cannot be computed")

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.inputs, self.outputs


class Transposed:
    """The transposed operator."""

    def __init__(self, operator: Operator) -> None:
        self.count, self.inputs, self.outputs = operator.count, operator.outputs, operator.inputs
        self.device, self.times, self.transposed = operator.device, operator.transposed, operator.times
        self._operator = operator

    def only(self, rows: Tensor) -> Transposed:
        return Transposed(self._operator.only(rows))


class Matrices:
    """An operator of stored matrices, N×outputs×inputs."""

    def __init__(self, matrices: Tensor) -> None:
        self.matrices, self.device = matrices, matrices.device
        self.count, self.outputs, self.inputs = matrices.shape

    def times(self, v: Tensor) -> Tensor:
        return torch.einsum("nij,nj->ni", self.matrices, v)

    def transposed(self, u: Tensor) -> Tensor:
        return torch.einsum("nij,ni->nj", self.matrices, u)

    def only(self, rows: Tensor) -> Matrices:
        return Matrices(self.matrices[rows])


class _named:
    """Turns errors of autograd into a UserError with the name of the piece."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        signs = ("differentiate twice", "not implemented", "does not require grad")
        if isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs):
            reason = str(error).splitlines()[0]
            raise UserError(f"{self.name} has an operation without a second derivative: {reason}") from None
