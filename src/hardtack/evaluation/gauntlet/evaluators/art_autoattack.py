"""The AutoAttack of the Adversarial Robustness Toolbox (Nicolae et al. 2018). It gives no warnings."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from hardtack.base.registry import evaluators
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.gauntlet.evaluators.adapter import claim_from_images, import_peer
from hardtack.threats import Threat


@evaluators.register("art", help="the AutoAttack of the Adversarial Robustness Toolbox, where it is installed")
def art_autoattack(model: nn.Module, x: Tensor, y: Tensor, *, threat: Threat, runtime: Runtime) -> Claim:
    """Its standard list (APGD-CE, APGD-DLR, DeepFool, Square) with a step of a fifth of the radius."""
    install = "pip install adversarial-robustness-toolbox"
    evasion = import_peer("art.attacks.evasion", install=install)
    classification = import_peer("art.estimators.classification", install=install)
    began = time.perf_counter()
    classifier = classification.PyTorchClassifier(
        model=model, loss=nn.CrossEntropyLoss(), input_shape=tuple(x.shape[1:]), nb_classes=model(x[:1]).shape[1],
        clip_values=(0.0, 1.0), device_type="gpu" if x.device.type == "cuda" else "cpu",
    )  # fmt: skip
    norm = {"linf": "inf", "l2": 2, "l1": 1}[threat.norm]
    attack = evasion.AutoAttack(
        estimator=classifier, norm=norm, eps=threat.radius, eps_step=threat.radius / 5, batch_size=min(len(x), 250)
    )
    x_adv = torch.from_numpy(attack.generate(x.cpu().numpy(), y.cpu().numpy()))
    return claim_from_images(model.to(x.device).eval(), x, y, x_adv, began=began)
