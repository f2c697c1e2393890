"""What may stop a run: a gradient that is not finite or not there, a batch of one image, a signal to leave."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import torch
from torch import Tensor

from hardtack.base.errors import UserError


class FiniteGuard:
    """Keeps a non-finite gradient from ever reaching the weights.

    On the CPU, `watch` stops the run at once. On the GPU that would make every step wait for the device; there the
    fused optimiser reads a flag on the device and leaves the weights alone from the first bad step on, and `check`,
    called wherever the host waits anyway (logs, checkpoints), stops the run.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimiser = optimiser
        self.device = device
        self._bad_step = torch.full((), -1, dtype=torch.int64, device=device)

    def watch(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Before the optimiser's step number `step`; `norm` is the norm of all gradients."""
        bad = ~torch.isfinite(norm + loss)
        self._bad_step = torch.where(bad & (self._bad_step < 0), step, self._bad_step)
        fused = self.device.type == "cuda" and all(group.get("fused") for group in self.optimiser.param_groups)
        if fused:
            self.optimiser.found_inf = (self._bad_step >= 0).float()  # type: ignore[attr-defined]
        else:
            self.check()

    def check(self) -> None:
        step = int(self._bad_step)
        if step >= 0:
            raise UserError(
                f"step {step}: the loss or the gradient norm is not finite; the weights were not updated. "
                "Lower optimiser.lr, set train.clip, or use runtime.precision=fp32"
            )


def check_gradient(loss: Tensor) -> Tensor:
    if not loss.requires_grad:
        raise UserError(
            "the loss has no gradient: the model computes its logits without one, say under torch.no_grad(), "
            "so there is nothing to train it by"
        )
    return loss


@contextlib.contextmanager
def enough_images() -> Iterator[None]:
    """Batch norm cannot take statistics of one number per channel; how many there are, it finds only when it runs."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UserError(
            "batch norm needs two images or more in training, and here it sees one at a time: raise train.batch_size "
            "or lower train.accumulate"
        ) from error


@contextlib.contextmanager
def terminated() -> Iterator[list[int]]:
    """A list that SIGTERM fills, so that the loop can save its state at the next step and leave."""
    received: list[int] = []
    try:
        before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    except ValueError:  # not the main thread: no handler can be set, the last saved state stands
        yield received
        return
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def outlived(received: list[int]) -> Iterator[None]:
    """After a signal the first of several processes saves the state and leaves; the others fail in their next exchange
    with it, which is the end that they were asked for."""
    try:
        yield
    except RuntimeError as error:
        if not received or not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            raise
        raise SystemExit(128 + received[0]) from error
