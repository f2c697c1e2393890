"""The AutoAttack of torchattacks (Kim 2020). It gives no warnings."""

from __future__ import annotations

import time

from torch import Tensor, nn

from hardtack.base.registry import evaluators
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.gauntlet.evaluators.adapter import NORMS, claim_from_images, import_peer
from hardtack.threats import Threat


@evaluators.register("torchattacks", help="the AutoAttack of torchattacks, where it is installed (linf, l2)")
def torchattacks_autoattack(model: nn.Module, x: Tensor, y: Tensor, *, threat: Threat, runtime: Runtime) -> Claim:
    """Its standard version with its default settings."""
    package = import_peer("torchattacks", install="pip install torchattacks")
    began = time.perf_counter()
    if threat.norm == "l1":
        return Claim(refused="torchattacks' AutoAttack has no l1")
    classes = model(x[:1]).shape[1]
    attack = package.AutoAttack(
        model, norm=NORMS[threat.norm], eps=threat.radius, version="standard", n_classes=classes, seed=runtime.seed
    )
    attack.set_device(x.device)
    return claim_from_images(model, x, y, attack(x, y), began=began)
