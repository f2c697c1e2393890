"""The official AutoAttack (Croce and Hein 2020), with the warnings that it logs as its flags."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.registry import evaluators
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.gauntlet.evaluators.adapter import NORMS, import_peer
from hardtack.evaluation.sanity import Flag, flag
from hardtack.threats import Threat

# words of the official warnings, the code they get here, and whether they cast doubt on the number
WARNINGS = {
    "randomized defense": ("red", "random_outputs"),
    "probability distribution": ("red", "probabilities"),
    "zero gradient": ("red", "zero_gradient"),
    "Square Attack has decreased": ("red", "masked_gradients"),
    "dynamic defense": ("red", "dynamic"),
    "more than": ("yellow", "few_classes"),
}


@evaluators.register("official", help="the official AutoAttack, where it is installed", version="standard")
@evaluators.register("official_rand", help="the official AutoAttack version=rand, where installed", version="rand")
def official_autoattack(
    model: nn.Module, x: Tensor, y: Tensor, *, threat: Threat, runtime: Runtime, version: str = "standard"
) -> Claim:
    """The number that the official code prints: the images on which none of its attacks succeeded."""
    install = "pip install git+https://github.com/fra31/auto-attack"
    package = import_peer("autoattack", install=install)
    began = time.perf_counter()
    lines: list[str] = []
    device = str(x.device)
    attack: Any = package.AutoAttack(
        model, norm=NORMS[threat.norm], eps=threat.radius, seed=runtime.seed, verbose=False, version=version,
        device=device,
    )  # fmt: skip
    attack.logger.log = lines.append
    with torch.no_grad():
        clean = (model(x).argmax(dim=1) == y).float().mean().item()
    x_adv, predicted = attack.run_standard_evaluation(x, y, bs=min(len(x), 250), return_labels=True)
    return Claim(
        robust_accuracy=(predicted.to(y.device) == y).float().mean().item(), clean_accuracy=clean,
        flags=read_warnings(lines), seconds=time.perf_counter() - began, x_adv=x_adv.detach(),
    )  # fmt: skip


def read_warnings(lines: list[str]) -> tuple[Flag, ...]:
    """One flag for each kind of warning; a warning that is not known here is a yellow one."""
    flags: dict[str, Flag] = {}
    for line in lines:
        if not line.startswith("Warning"):
            continue
        level, code = next((found for words, found in WARNINGS.items() if words in line), ("yellow", "warning"))
        flags.setdefault(code, flag(level, code, line))
    return tuple(flags.values())
