"""The official AutoAttack (Croce and Hein 2020): `autoattack:standard`, `autoattack:apgd-ce`, `autoattack:square`."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.packages.package_attack import Package, PackageAttack, Parameter
from hardtack.base.registry import packages

_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


class Part(NamedTuple):
    """A version, or one of its attacks: the object that has its settings, and these with their defaults."""

    version: str
    part: str = ""
    settings: tuple[tuple[str, int], ...] = ()


_STEPS, _CLASSES = ("n_iter", 100), ("n_target_classes", 9)
_KINDS = {
    "standard": Part("standard"),
    "plus": Part("plus"),
    "rand": Part("rand"),
    "apgd-ce": Part("custom", "apgd", (_STEPS, ("n_restarts", 1), ("eot_iter", 1))),
    "apgd-dlr": Part("custom", "apgd", (_STEPS, ("n_restarts", 1), ("eot_iter", 1))),
    "apgd-t": Part("custom", "apgd_targeted", (_STEPS, ("n_restarts", 1), _CLASSES)),
    "fab": Part("custom", "fab", (_STEPS, ("n_restarts", 1))),
    "fab-t": Part("custom", "fab", (_STEPS, _CLASSES)),
    "square": Part("custom", "square", (("n_queries", 5000), ("n_restarts", 1))),
}


@packages.register("autoattack", help="the official AutoAttack: pip install git+https://github.com/fra31/auto-attack")
class OfficialAutoAttack(Package):
    """Its versions and its attacks, each as the official code runs it. Its warnings are warnings here."""

    name, module, distribution = "autoattack", "autoattack", "autoattack"
    install = "pip install git+https://github.com/fra31/auto-attack"

    def kinds(self) -> dict[str, Any]:
        self.load()
        return dict(_KINDS)

    def parameters(self, kind: Any) -> list[Parameter]:
        return [Parameter(name, int, default) for name, default in kind.settings]

    def search(self, attack: PackageAttack, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        version, part, _ = attack.kind
        name = attack.registered.partition(":")[2]
        official = self.load().AutoAttack(
            model, norm=_NORMS[attack.threat.norm], eps=attack.threat.radius, seed=int(torch.randint(2**31, ())),
            verbose=False, device=str(x.device), version=version, attacks_to_run=[name] if part else [],
        )  # fmt: skip
        lines: list[str] = []
        official.logger.log = lines.append
        with torch.no_grad():
            others = model(x[:1]).shape[1] - 1
        for member in (official.apgd_targeted, official.fab):  # the official code takes nine classes to be there
            member.n_target_classes = min(member.n_target_classes, others)
        if part:
            member = vars(official)[part]
            for key, value in attack.given.items():
                setattr(member, key, min(value, others) if key == _CLASSES[0] else value)
            if attack.threat.norm == "l1" and part.startswith("apgd"):
                member.use_largereps = True
        x_adv = official.run_standard_evaluation(x, y, bs=len(x))
        for line in dict.fromkeys(lines):
            warnings.warn(f"{attack.registered}: {line.removeprefix('Warning: ')}")
        return x_adv
