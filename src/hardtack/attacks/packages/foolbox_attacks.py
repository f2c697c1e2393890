"""Attacks of foolbox (Rauber et al. 2017): `foolbox:LinfPGD`, `foolbox:L2DeepFoolAttack`."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from hardtack.attacks.packages.package_attack import (
    Package,
    PackageAttack,
    Parameter,
    Shell,
    can_be_made,
    read_signature,
)
from hardtack.base.registry import packages

# need images to start from, a target or to be fed with data
_WITHOUT = ("DatasetAttack", "BinarizationRefinementAttack", "GenAttack", "PointwiseAttack")
_CONSTRAINED = "constraint"


@packages.register("foolbox", help="attacks of foolbox: pip install foolbox")
class Foolbox(Package):
    """Attacks with a fixed radius search at that of the threat; those for the smallest perturbation are cut off there.

    `distance` and `constraint` follow the threat, where an attack takes them.
    """

    name, module, distribution = "foolbox", "foolbox", "foolbox"
    install = "pip install foolbox"

    def kinds(self) -> dict[str, Any]:
        library = self.load()
        base = self.load("foolbox.attacks.base")
        callable_here = (base.FixedEpsilonAttack, base.MinimizationAttack)
        return {
            name: kind
            for name, kind in vars(library.attacks).items()
            if inspect.isclass(kind) and issubclass(kind, callable_here) and not name.startswith("_")
            and name not in _WITHOUT and kind not in callable_here and can_be_made(kind)
        }  # fmt: skip

    def parameters(self, kind: Any) -> list[Parameter]:
        found = [item for item in read_signature(kind) if item is not None]
        return [item._replace(type=str | None, default=None) if item.name == _CONSTRAINED else item for item in found]

    def norm(self, attack: PackageAttack) -> str | None:
        """Of attacks with a fixed radius; the smallest perturbation in one norm may lie in the ball of another."""
        base = self.load("foolbox.attacks.base")
        return _norm_of(self._made(attack)) if issubclass(attack.kind, base.FixedEpsilonAttack) else None

    def search(self, attack: PackageAttack, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        made = self._made(attack)
        same = _norm_of(made) == attack.threat.norm
        wrapped = self.load().PyTorchModel(Shell(model), bounds=(0, 1), device=x.device)
        raw, clipped, _ = made(wrapped, x, y, epsilons=attack.threat.radius if same else None)
        return clipped if same else raw

    def _made(self, attack: PackageAttack) -> Any:
        taken, given = inspect.signature(attack.kind.__init__).parameters, dict(attack.given)
        if "distance" in taken:
            given["distance"] = vars(self.load("foolbox.distances"))[attack.threat.norm]
        if _CONSTRAINED in taken and attack.threat.norm in ("linf", "l2"):
            given = {_CONSTRAINED: attack.threat.norm, **given}
        return attack.kind(**given)


def _norm_of(made: Any) -> str:
    """`linf`, `l2`, `l1`, `l0`."""
    return f"l{made.distance.p:g}" if made.distance.p != float("inf") else "linf"
