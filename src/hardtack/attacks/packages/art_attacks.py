"""Attacks of the Adversarial Robustness Toolbox (Nicolae et al. 2018): `art:DeepFool`, `art:HopSkipJump`."""

from __future__ import annotations

import contextlib
import inspect
import io
from typing import Any

import numpy as np
import torch
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

_NORMS = {"linf": np.inf, "l2": 2, "l1": 1}
_SEARCHES = {"BasicIterativeMethod": "linf"}  # with a radius, and no setting of a norm
# they make patches or universal images, need a target, features, frames, single images or probabilities, or are not for
# PyTorch
_WITHOUT = (
    "AdversarialPatch", "FeatureAdversaries", "GRAPHITE", "LowProFool", "OverTheAir", "TargetedUniversal",
    "Wasserstein",
    "TensorFlowV2", "CompositeAdversarialAttack", "ShadowAttack", "SimBA", "VirtualAdversarialMethod",
)  # fmt: skip


@packages.register("art", help="attacks of ART: pip install adversarial-robustness-toolbox")
class Art(Package):
    """Attacks on classifiers. `eps_step` is by default the same share of the radius as in the package."""

    name, module, distribution = "art", "art", "adversarial-robustness-toolbox"
    install = "pip install adversarial-robustness-toolbox"

    def kinds(self) -> dict[str, Any]:
        library = self.load("art.attacks.evasion")
        base = self.load("art.attacks.attack").EvasionAttack
        ours = self.load("art.estimators.classification").PyTorchClassifier
        return {
            name: kind
            for name, kind in vars(library).items()
            if inspect.isclass(kind) and issubclass(kind, base) and not name.startswith("_") and can_be_made(kind)
            and _fits(kind, ours) and not any(word in name for word in _WITHOUT)
        }  # fmt: skip

    def parameters(self, kind: Any) -> list[Parameter]:
        found = [item for item in read_signature(kind) if item is not None]
        scaled = _scaled(kind)
        return [item._replace(type=item.type | None, default=None) if item.name in scaled else item for item in found]

    def norm(self, attack: PackageAttack) -> str | None:
        return _SEARCHES.get(attack.kind.__name__)

    def search(self, attack: PackageAttack, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        taken = inspect.signature(attack.kind.__init__).parameters
        radius = attack.threat.radius
        settings: dict[str, Any] = {name: share * radius for name, share in _scaled(attack.kind).items()}
        settings |= {name: value for name, value in _shared(len(x)).items() if name in taken} | attack.given
        settings |= {"eps": radius} if "eps" in taken else {}
        settings |= {"norm": _NORMS[attack.threat.norm]} if "norm" in taken else {}
        made = attack.kind(self._classifier(model, x), **settings)
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars of attacks inside of attacks
            found = made.generate(x.cpu().numpy(), y.cpu().numpy())
        return torch.from_numpy(np.asarray(found))

    def _classifier(self, model: nn.Module, x: Tensor) -> Any:
        with torch.no_grad():
            classes = model(x[:1]).shape[1]
        return self.load("art.estimators.classification").PyTorchClassifier(
            model=Shell(model), loss=nn.CrossEntropyLoss(), input_shape=tuple(x.shape[1:]), nb_classes=classes,
            clip_values=(0.0, 1.0), device_type="gpu" if x.device.type == "cuda" else "cpu",
        )  # fmt: skip


def _fits(kind: Any, classifier: type) -> bool:
    """Whether the class says that it attacks estimators such as a classifier in PyTorch."""
    needed = [item if isinstance(item, tuple) else (item,) for item in kind._estimator_requirements]
    return bool(needed) and all(issubclass(classifier, choice) for choice in needed)


def _shared(images: int) -> dict[str, Any]:
    return {"verbose": False, "batch_size": images, "targeted": False}


def _scaled(kind: Any) -> dict[str, float]:
    """`eps_step` of a class with a radius, as a share of its default radius."""
    taken = inspect.signature(kind.__init__).parameters
    if "eps" not in taken or "eps_step" not in taken:
        return {}
    return {"eps_step": taken["eps_step"].default / taken["eps"].default}
