"""Attacks of torchattacks (Kim 2020): `torchattacks:PGD`, `torchattacks:APGD`, `torchattacks:CW`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks.packages.package_attack import Package, PackageAttack, Parameter, can_be_made, read_signature
from hardtack.base.errors import UserError
from hardtack.base.registry import packages

_NORMS = {"linf": "Linf", "l2": "L2"}
_WITHOUT = ("MultiAttack", "LGV", "VANILA", "GN", "Attack")  # made of other attacks or data, or no attack
_RADIUS = ("eps", "max_epsilon")


@packages.register("torchattacks", help="attacks of torchattacks: pip install torchattacks --no-deps")
class Torchattacks(Package):
    """`alpha`, the length of a step, is by default the same share of the radius as in the package."""

    name, module, distribution = "torchattacks", "torchattacks", "torchattacks"
    install = "pip install torchattacks --no-deps (it demands an old version of requests, and does not need it)"

    def kinds(self) -> dict[str, Any]:
        library = self.load()
        base = self.load("torchattacks.attack").Attack
        return {
            name: kind
            for name, kind in vars(library).items()
            if inspect.isclass(kind) and issubclass(kind, base) and not name.startswith("_")
            and name not in _WITHOUT and can_be_made(kind)
        }  # fmt: skip

    def parameters(self, kind: Any) -> list[Parameter]:
        found = [item for item in read_signature(kind) if item is not None]
        scaled = _scaled(kind)
        return [item._replace(type=item.type | None, default=None) if item.name in scaled else item for item in found]

    def norm(self, attack: PackageAttack) -> str | None:
        """By the class: the name ends with L2, else it is linf. Without a radius it is a smallest perturbation."""
        taken = inspect.signature(attack.kind.__init__).parameters
        if "norm" in taken:
            if attack.threat.norm not in _NORMS:
                raise UserError(f"{attack.registered} searches in {' and '.join(_NORMS)}, found threat={attack.threat}")
            return None
        radius = any(name in taken for name in _RADIUS)
        return None if not radius else "l2" if attack.kind.__name__.endswith("L2") else "linf"

    def search(self, attack: PackageAttack, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        taken = inspect.signature(attack.kind.__init__).parameters
        radius = attack.threat.radius
        scaled = {name: share * radius for name, share in _scaled(attack.kind).items()}
        settings: dict[str, Any] = {**scaled, **attack.given}
        settings |= {name: radius for name in _RADIUS if name in taken}
        if "norm" in taken:
            settings["norm"] = _NORMS[attack.threat.norm]
        if "seed" in taken:
            settings["seed"] = int(torch.randint(2**31, ()))
        if "n_classes" in taken:
            with torch.no_grad():
                settings["n_classes"] = model(x[:1]).shape[1]
        made = attack.kind(model, **settings)
        made.set_device(x.device)
        return made(x, y)


def _scaled(kind: Any) -> dict[str, float]:
    """`alpha` of a class with a radius, as a share of its default radius."""
    taken = inspect.signature(kind.__init__).parameters
    if "eps" not in taken or "alpha" not in taken:
        return {}
    return {"alpha": taken["alpha"].default / taken["eps"].default}
