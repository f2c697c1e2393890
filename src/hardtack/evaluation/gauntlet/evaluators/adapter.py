"""What the adapters of other packages share. None of these packages is a dependency of hardtack."""

from __future__ import annotations

import importlib
import time
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.sanity import Flag

NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def import_peer(module: str, *, install: str) -> Any:
    """A module of another package, or a sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        message = f"this evaluator needs {top}, which cannot be imported ({error}): {install}"
        raise UserError(message) from None


@torch.no_grad()
def claim_from_images(
    model: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor, *, began: float, flags: tuple[Flag, ...] = ()
) -> Claim:
    """The claim of an attack that only returns images: the accuracy on them, measured as its users measure it."""
    clean = (model(x).argmax(dim=1) == y).float().mean().item()
    robust = (model(x_adv.to(x)).argmax(dim=1) == y).float().mean().item()
    return Claim(
        robust_accuracy=robust, clean_accuracy=clean, flags=flags, seconds=time.perf_counter() - began,
        x_adv=x_adv.detach().to(x),
    )  # fmt: skip
