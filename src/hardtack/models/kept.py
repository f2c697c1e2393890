"""Modules that were given in Python, under a name that settings can hold: `given:Net-3f2a91c07b5d6e8f`.

with kept_module(net) as name:
    load_model(name)          # a copy of net, wrapped as a Classifier
    rebuild("runs/x")         # the weights of a run that trained such a module, in a copy of it

The name has a digest of the module's structure: its parts with their settings, the names, shapes and types of its
tensors, and which of them are frozen. The module is known to this process alone, inside the `with`; a file never names
code that would be run.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.models.classifier import Classifier, evaluating, wrap
from hardtack.models.dtypes import check_values, odd_dtypes
from hardtack.models.first_images import first_logits, reason
from hardtack.models.from_file import state_sha256

GIVEN = "given:"
_kept: dict[str, tuple[nn.Module, int]] = {}


@contextlib.contextmanager
def kept_module(module: nn.Module, *, channels: int = 3) -> Iterator[str]:
    """The module under a name, inside; `channels`: of the images that it takes."""
    check_values(module)
    name = f"{GIVEN}{_kind(module)}-{structure_sha256(module)[:16]}"
    before = _kept.pop(name, None)
    _kept[name] = (module, channels)
    try:
        yield name
    finally:
        _kept.pop(name)
        if before is not None:
            _kept[name] = before


def is_given(name: str) -> bool:
    return name.startswith(GIVEN)


def given_model(name: str, settings: Mapping[str, Any]) -> Classifier:
    """A copy of the module of this name. `settings`: those of its section that were set; it takes none."""
    for key in settings:
        mend = "ht.load_weights(module, FILE)" if key in ("weights", "adapt") else "ht.wrap(module, mean=…, std=…)"
        raise UserError(f"model.{key} belongs to a model that is named; for a module that is given use {mend}")
    if name not in _kept:
        raise UserError(
            f"the module '{name}' was given in Python, and no file says how to make it: in Python give it again, "
            "model=…; on the command line name a function that makes it, model=FILE.py:FUNCTION"
        )
    module, channels = _kept[name]
    made = _copied(module)
    return made if isinstance(made, Classifier) else wrap(made, channels=1 if channels == 1 else 3)


def model_like(architecture: Mapping[str, Any]) -> Classifier | None:
    """A copy of a module that is kept and is of the class that an architecture names, normalising as that says.

    The class may have moved to another file since, or out of `__main__`.
    """
    for module, _ in reversed(_kept.values()):
        if _class_of(module) == architecture["name"].rpartition(".")[2]:
            made = _copied(module)
            return made if isinstance(made, Classifier) else wrap(
                made, mean=architecture["mean"], std=architecture["std"], num_classes=architecture.get("num_classes"),
                channels=1 if architecture.get("channels") == 1 else 3,
            )  # fmt: skip
    return None


def given_classes() -> str:
    """The classes of the modules that are kept, for messages."""
    return ", ".join(dict.fromkeys(_class_of(module) for module, _ in _kept.values()))


def structure_sha256(module: nn.Module) -> str:
    """Of what a module is made of, not of its weights. Two modules of the same code and settings have the same."""
    frozen = [name for name, weight in module.named_parameters() if not weight.requires_grad]
    text = re.sub(r"0x[0-9a-f]+", "", repr(module))  # where functions lie in memory
    digest = hashlib.sha256(f"{type(module).__module__}.{type(module).__qualname__}\n{text}\n{frozen}\n".encode())
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, Tensor):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
    return digest.hexdigest()


def weights_sha256(module: nn.Module) -> str:
    """Of the weights of a module, the same whether it is wrapped or not."""
    return state_sha256(module.body if isinstance(module, Classifier) else module)


def fit_to(model: Classifier, x: Tensor, y: Tensor) -> None:
    """Check with a few images that a module can be trained, and note how many classes it has."""
    if odd := odd_dtypes(model):
        raise UserError(f"weights of this module are {odd}, but training is in float32: use module.float()")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise UserError("this module has no parameters that require a gradient, so there is nothing to train")
    with evaluating(model), torch.no_grad():
        logits = first_logits(model, x)
    if logits.ndim != 2 or len(logits) != len(x) or logits.shape[1] < 2:
        raise UserError(f"the module must return logits N×classes, found {tuple(logits.shape)} for {len(x)} images")
    if bool((logits >= 0).all()) and bool(((logits.sum(dim=1) - 1).abs() < 1e-4).all()):
        raise UserError("the module returns probabilities; training needs logits: remove its final softmax")
    if int(y.max()) >= logits.shape[1]:
        raise UserError(f"the module returns {logits.shape[1]} logits, but there is a label {int(y.max())}")
    model.num_classes = model.architecture["num_classes"] = logits.shape[1]


def _kind(module: nn.Module) -> str:
    if isinstance(module, Classifier) and module.architecture["source"] != "wrapped":
        return re.sub(r"[^\w.]+", "-", module.architecture["name"])
    return _class_of(module)


def _class_of(module: nn.Module) -> str:
    return type(module.body if isinstance(module, Classifier) else module).__name__


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module).cpu()
    except Exception as error:
        raise UserError(f"the module cannot be copied by copy.deepcopy ({reason(error)})") from None
