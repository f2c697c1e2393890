"""When a number must be refused, and when it must carry a warning.

A refusal is a UserError before any number is made; a flag is stored and printed with the number. Red means
that the number should not be believed as it stands, yellow that it needs a second look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.errors import UserError

Flag = dict[str, str]


def flag(level: str, code: str, message: str) -> Flag:
    return {"level": level, "code": code, "message": message}


def check_inputs(x: Tensor, y: Tensor, *, num_classes: int | None = None) -> None:
    """Images N×3×H×W in [0,1], one label in range for each."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise UserError(f"images and labels must be tensors, found {type(x).__name__} and {type(y).__name__}")
    if x.ndim == 4 and len(x) == 0:
        raise UserError("there are no images to evaluate")
    if x.ndim != 4 or x.shape[1] != 3 or x.dtype != torch.float32:
        raise UserError(f"images must be float32 N×3×H×W, found {x.dtype} {tuple(x.shape)}")
    if len(x) != len(y) or y.dtype != torch.int64 or y.ndim != 1:
        raise UserError(f"labels must be int64 of length {len(x)}, found {y.dtype} {tuple(y.shape)}")
    low, high = x.min().item(), x.max().item()
    if not (low >= -1e-6 and high <= 1 + 1e-6):  # also refuses NaN
        raise UserError(
            f"images must lie in [0,1], found [{low:.4g}, {high:.4g}]; "
            "undo any normalisation and put it inside the model: ht.wrap(module, mean=…, std=…)"
        )
    if y.min() < 0 or (num_classes is not None and y.max() >= num_classes):
        most = "C−1" if num_classes is None else num_classes - 1
        raise UserError(f"labels must lie in 0 … {most}, found {y.min().item()} … {y.max().item()}")


def check_logits(logits: Tensor, y: Tensor) -> None:
    """Finite logits, not probabilities, for at least as many classes as there are labels."""
    if logits.ndim != 2 or len(logits) != len(y):
        raise UserError(f"the model must return logits N×classes, found {tuple(logits.shape)} for {len(y)} images")
    if not logits.isfinite().all():
        raise UserError("the model returns NaN or infinite logits on clean images")
    if y.max() >= logits.shape[1]:
        raise UserError(f"label {y.max().item()} has no logit: the model has {logits.shape[1]} classes")
    simplex = (logits.min() >= 0) & ((logits.sum(dim=1) - 1).abs().max() < 1e-4)
    if logits.shape[1] > 1 and simplex:
        raise UserError("the model returns probabilities; attacks need logits: remove its final softmax")


@torch.no_grad()
def check_behaviour(model: nn.Module, x: Tensor, logits: Tensor) -> list[Flag]:
    """Flags for outputs that change by themselves, or with the other images of the batch."""
    scale = logits.abs().amax().clamp_min(1e-12)
    flags = []
    again = model(x).float()
    if (again - logits).abs().amax() / scale > 1e-4:
        flags.append(flag("red", "random_outputs", "two passes over the same images differ; the number is one draw"))
    elif len(x) > 1:
        probe = x[: min(4, len(x))]
        alone = torch.cat([model(image[None]).float() for image in probe])
        if (alone - logits[: len(probe)]).abs().amax() / scale > 1e-3:
            message = "logits of an image depend on the others of its batch; verdicts depend on the batch size"
            flags.append(flag("red", "batch_dependent", message))
    return flags


def search_flags(columns: Mapping[str, np.ndarray]) -> list[Flag]:
    """Flags from what the attack saw on each image (the verdict columns of `suite`)."""
    flags, attacked = [], columns["attacked"]
    survivors = attacked & columns["robust"]
    zero = columns["zero_gradient"].sum() / max(attacked.sum(), 1)
    if zero > 0.01:
        message = f"the gradient is zero or NaN on {zero:.0%} of the attacked images: masked or saturated"
        flags.append(flag("red", "zero_gradient", message + "; try attack.loss=margin or a gradient-free attack"))
    broken = columns["not_finite"].sum() / max(attacked.sum(), 1)
    if broken > 0:
        message = (
            f"NaN or infinite logits on the way to {broken:.1%} of the attacked images: they were not attacked well"
        )
        flags.append(flag("red", "not_finite", message))
    unverified = columns["unverified"].sum() / max(attacked.sum(), 1)
    if unverified > 0.01:
        message = f"on {unverified:.1%} of the attacked images the search claimed a success that fp32 did not confirm"
        flags.append(flag("yellow", "unverified", message + "; try runtime.precision=fp32"))
    flat = (columns["flat_loss"] & survivors).sum() / max(survivors.sum(), 1)
    if flat > 0.1:
        message = f"on {flat:.0%} of the surviving images the loss never rose above its start"
        flags.append(flag("yellow", "flat_loss", message + ": the attack may be failing"))
    return flags


def other_classes(expected: int | None, found: int) -> list[Flag]:
    """Labels are compared by number: 10 classes of data against 1000 of a model mean what their order says."""
    if expected is None or expected == found:
        return []
    message = f"the data has {expected} classes and the model {found}; labels were compared by their numbers"
    return [flag("red", "other_classes", message)]


UNTRAINED = flag("red", "untrained", "the model's weights are random: give model.weights=FILE or model.pretrained=true")


def class_names(trained: Sequence[str] | None, found: Sequence[str]) -> list[Flag]:
    """A run's classes against those of the data it is measured on, name by name."""
    if trained is None or list(trained) == list(found):
        return []
    pairs = [f"{a} → {b}" for a, b in zip(trained, found, strict=False) if a != b]
    message = f"the run's classes and the data's differ ({', '.join(pairs[:3]) or 'in number'})"
    return [flag("red", "class_names", message + "; labels were compared by their numbers")]


def few_classes(num_classes: int, loss: str) -> list[Flag]:
    if loss == "dlr" and num_classes < 3:
        return [flag("yellow", "few_classes", f"dlr needs 3 classes, the model has {num_classes}: margin was used")]
    return []
