"""hardtack's own tiers, through the same path as `hardtack evaluate suite=autoattack`, so that the flags are real."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import evaluators
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.suite import evaluate
from hardtack.threats import Threat


@evaluators.register("fast", help="hardtack evaluate suite=autoattack tier=fast", tier="fast")
@evaluators.register("verified", help="hardtack evaluate suite=autoattack tier=verified", tier="verified")
@evaluators.register("exact", help="hardtack evaluate suite=autoattack tier=exact", tier="exact")
@evaluators.register("max", help="hardtack evaluate suite=autoattack tier=max", tier="max")
@evaluators.register("rand", help="hardtack evaluate suite=autoattack version=rand", tier="verified", version="rand")
def autoattack_tier(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat,
    runtime: Runtime,
    tier: str = "fast",
    version: str = "standard",
) -> Claim:
    """One tier of our AutoAttack."""
    began = time.perf_counter()
    settings: dict[str, Any] = {"tier": tier, "version": version, "threat": threat, "examples": len(x)}
    try:
        result = evaluate(model, (x, y), suite="autoattack", runtime=runtime, quiet=True, **settings)
    except UserError as error:
        return Claim(refused=str(error), seconds=time.perf_counter() - began)
    images = result.examples.get("x_adv")
    x_adv = None if images is None or len(images) < len(x) else torch.from_numpy(images).permute(0, 3, 1, 2).to(x)
    return Claim(
        robust_accuracy=result.robust_accuracy, clean_accuracy=result.clean_accuracy, flags=result.flags,
        seconds=time.perf_counter() - began, x_adv=x_adv,
    )  # fmt: skip
