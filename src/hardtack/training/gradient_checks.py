"""Checks of every update: a loss with a gradient, gradients that are finite, batches that batch norm can use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from hardtack.base.errors import UserError


class FiniteCheck:
    """Keeps a gradient that is not finite from reaching the weights, and stops the run.

    On the CPU, `watch` stops the run at once. On the GPU that would make every step wait for the device; there the
    fused optimiser reads a flag on the device and leaves the weights alone from the first bad step on. The run stops
    in `check`, which is called where the host waits for the device anyway (logs, checkpoints).
    """

    def __init__(self, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimiser = optimiser
        self.device = device
        self._bad_step = torch.full((), -1, dtype=torch.int64, device=device)

    def watch(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Call before optimiser step number `step`; `norm` is the norm of all gradients."""
        bad = ~torch.isfinite(norm + loss)
        self._bad_step = torch.where(bad & (self._bad_step < 0), step, self._bad_step)
        fused = self.device.type == "cuda" and all(group.get("fused") for group in self.optimiser.param_groups)
        if fused:
            self.optimiser.found_inf = (self._bad_step >= 0).float()  # type: ignore[attr-defined]
        else:
            self.check()

    def check(self) -> None:
        """Raise an error if any step since the start was not finite."""
        step = int(self._bad_step)
        if step >= 0:
            raise UserError(
                f"step {step}: the loss or the gradient norm is not finite; the weights were not updated. "
                "Lower optimiser.lr, set train.clip, or use runtime.precision=fp32"
            )


def require_gradient(loss: Tensor) -> Tensor:
    """The loss; refused if no gradient can be taken of it."""
    if not loss.requires_grad:
        raise UserError(
            "the loss has no gradient, so the model cannot be trained: it computes its logits without a gradient, "
            "for example under torch.no_grad()"
        )
    return loss


@contextlib.contextmanager
def explain_batch_norm_error() -> Iterator[None]:
    """Says what to do where batch norm gets a single value per channel, which PyTorch reports only as it happens."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UserError(
            "batch norm needs at least two images in training, and a micro-batch has only one: raise train.batch_size "
            "or lower train.accumulate"
        ) from error
