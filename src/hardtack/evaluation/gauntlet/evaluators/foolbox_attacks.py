"""The attacks of foolbox (Rauber et al. 2017). It has no AutoAttack: the union of its usual ones is taken."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from hardtack.base.registry import evaluators
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.gauntlet.evaluators.adapter import import_peer
from hardtack.threats import Threat


@evaluators.register("foolbox", help="foolbox: the union of PGD with 100 steps, FMN and DeepFool, where installed")
def foolbox_attacks(model: nn.Module, x: Tensor, y: Tensor, *, threat: Threat, runtime: Runtime) -> Claim:
    """An image counts as robust if foolbox calls none of the attacks successful."""
    package = import_peer("foolbox", install="pip install foolbox")
    began, names = time.perf_counter(), package.attacks
    kinds = {"ProjectedGradientDescentAttack": 100, "FMNAttack": 100, "DeepFoolAttack": 50}
    if threat.norm == "l1":
        del kinds["DeepFoolAttack"]
    offered = {name.lower(): name for name in vars(names)}
    searches = [vars(names)[offered[f"{threat.norm}{kind}".lower()]](steps=steps) for kind, steps in kinds.items()]
    wrapped = package.PyTorchModel(model, bounds=(0, 1), device=str(x.device))
    with torch.no_grad():
        correct = model(x).argmax(dim=1) == y
    robust, x_adv = correct.clone(), x.clone()
    for search in searches:
        _, images, success = search(wrapped, x, y, epsilons=threat.radius)
        x_adv = torch.where((success & robust)[:, None, None, None], images, x_adv)
        robust &= ~success
    return Claim(
        robust_accuracy=robust.float().mean().item(), clean_accuracy=correct.float().mean().item(),
        seconds=time.perf_counter() - began, x_adv=x_adv.detach(),
    )  # fmt: skip
