"""Checks of models, inputs and attacks: which measurements are refused, and which results carry a flag.

A refusal is a UserError before anything is measured. A flag is stored and printed with the result. Red means that the
result should not be trusted, yellow that it needs a closer look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models.first_images import first_logits

Flag = dict[str, str]


def flag(level: str, code: str, message: str) -> Flag:
    return {"level": level, "code": code, "message": message}


def check_inputs(x: Tensor, y: Tensor, *, num_classes: int | None = None) -> None:
    """Refuse anything but images N×3×H×W in [0,1] with one valid label each; a grey image has one channel."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise UserError(f"images and labels must be tensors, found {type(x).__name__} and {type(y).__name__}")
    if x.ndim == 4 and len(x) == 0:
        raise UserError("there are no images to evaluate")
    if x.ndim != 4 or x.shape[1] not in (1, 3) or x.dtype != torch.float32:
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


def check_logits(logits: Tensor, y: Tensor, *, votes: int = 1) -> None:
    """Refuse anything but finite logits (no probabilities) with a logit for every label.

    With several `votes` they are logarithms of mean probabilities, which may be −inf.
    """
    if votes > 1:
        logits = logits.clamp_min(-1e4)
    if logits.ndim != 2 or len(logits) != len(y):
        raise UserError(f"the model must return logits N×classes, found {tuple(logits.shape)} for {len(y)} images")
    if logits.shape[1] < 2:
        raise UserError("the model returns one number per image; attacks need a logit for each of two classes or more")
    if not logits.isfinite().all():
        raise UserError("the model returns NaN or infinite logits on clean images")
    check_classes(y, "label", logits.shape[1])
    simplex = (logits.min() >= 0) & ((logits.sum(dim=1) - 1).abs().max() < 1e-4)
    if simplex:
        raise UserError("the model returns probabilities; attacks need logits: remove its final softmax")


def check_classes(numbers: Tensor, what: str, classes: int) -> None:
    """Refuse labels or targets that no logit belongs to."""
    for odd in (int(numbers.min()), int(numbers.max())):
        if not 0 <= odd < classes:
            raise UserError(f"{what} {odd} has no logit: the model has {classes} classes")


@torch.no_grad()
def check_behaviour(model: nn.Module, x: Tensor, logits: Tensor, *, random_expected: bool = False) -> list[Flag]:
    """Flags for outputs that are random, depend on the other images of the batch, or need gradients to compute."""
    scale = logits.abs().amax().clamp_min(1e-12)
    flags = []
    with _gradients_counted() as calls:
        again = model(x).float()
    if calls[0]:
        message = f"the model takes gradients while it predicts ({calls[0]} in one pass): attacks see only the result"
        flags.append(flag("red", "dynamic", message + "; accuracy under attack may be far too high"))
    if (again - logits).abs().amax() / scale > 1e-4:
        if not random_expected:
            message = "two passes over the same images give different logits; the result is a single random draw"
            hint = "; suite=autoattack version=rand averages the accuracy under attack over several draws"
            flags.append(flag("red", "random_outputs", message + hint))
    elif len(x) > 1:
        probe = x[: min(4, len(x))]
        alone = torch.cat([model(image[None]).float() for image in probe])
        if (alone - logits[: len(probe)]).abs().amax() / scale > 1e-3:
            if (model(x).float() - logits).abs().amax() / scale > 1e-4:
                message = "the logits of the same images change from one call to the next or with the time"
                return [*flags, flag("red", "call_dependent", message + "; the model must depend on its input alone")]
            message = (
                "the logits of an image depend on the other images of its batch; the result depends on the batch size"
            )
            flags.append(flag("red", "batch_dependent", message))
    if (logits - logits[:1]).abs().amax() <= 1e-6 * scale and len(x) > 1 and (x - x[:1]).abs().amax() > 0:
        flags.append(flag("red", "constant_outputs", "the logits do not depend on the image"))
    return flags


@contextlib.contextmanager
def _gradients_counted() -> Iterator[list[int]]:
    """Count the calls of torch.autograd.grad and torch.autograd.backward inside the block."""
    calls, functions = [0], {name: getattr(torch.autograd, name) for name in ("grad", "backward")}

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            calls[0] += 1
            return function(*args, **named)

        return counted

    for name, function in functions.items():
        setattr(torch.autograd, name, counting(function))
    try:
        yield calls
    finally:
        for name, function in functions.items():
            setattr(torch.autograd, name, function)


def search_flags(columns: Mapping[str, np.ndarray], *, random: bool = False) -> list[Flag]:
    """Flags from the verdict columns of the attacks.

    A `random` model may not confirm a success that was real; this is not a fault of the attack or of the precision.
    """
    flags, attacked = [], columns["attacked"]
    survivors = attacked & columns["robust"]
    zero = columns["zero_gradient"].sum() / max(attacked.sum(), 1)
    if zero > 0.01:
        message = f"the gradient is zero or NaN on {zero:.0%} of the attacked images: it is masked or saturated"
        flags.append(flag("red", "zero_gradient", message + "; try attack.loss=margin or a gradient-free attack"))
    broken = columns["not_finite"].sum() / max(attacked.sum(), 1)
    if broken > 0:
        message = (
            f"NaN or infinite logits during the attack on {broken:.1%} of the images: these were not attacked properly"
        )
        flags.append(flag("red", "not_finite", message))
    unverified = columns["unverified"].sum() / max(attacked.sum(), 1)
    if unverified > 0.01 and not random:
        message = f"on {unverified:.1%} of the attacked images the search claimed a success that fp32 did not confirm"
        flags.append(flag("yellow", "unverified", message + "; try runtime.precision=fp32"))
    silent = int(columns["silent_success"].sum())
    if silent and not random:
        message = (
            f"on {silent} images the attack found a misclassified point, but returned another, correctly classified one"
        )
        flags.append(flag("red", "silent_success", message + ": the attack keeps the wrong iterate"))
    flat = (columns["flat_loss"] & survivors).sum() / max(survivors.sum(), 1)
    if flat > 0.1:
        message = f"on {flat:.0%} of the images that remain correct the loss never rose above its initial value"
        flags.append(flag("yellow", "flat_loss", message + ": the attack may be failing"))
    return flags


def other_classes(expected: int | None, outputs: int) -> list[Flag]:
    """A flag if data and model have different numbers of classes, because labels are compared by number."""
    if expected is None or expected == outputs:
        return []
    message = f"the data has {expected} classes and the model {outputs}; labels were compared by their numbers"
    return [flag("red", "other_classes", message)]


UNTRAINED = flag("red", "untrained", "the model's weights are random: give model.weights=FILE or model.pretrained=true")
NEW_HEAD = flag("red", "untrained", "the model's head is new: its weights were trained on another number of classes")


def class_names(trained: Sequence[str] | None, evaluated: Sequence[str]) -> list[Flag]:
    """A flag if the class names of the run differ from those of the data."""
    if trained is None or list(trained) == list(evaluated):
        return []
    pairs = [f"{a} → {b}" for a, b in zip(trained, evaluated, strict=False) if a != b]
    message = f"the run's classes and the data's differ ({', '.join(pairs[:3]) or 'in number'})"
    return [flag("red", "class_names", message + "; labels were compared by their numbers")]


def fallbacks(num_classes: int, stages: Sequence[Any]) -> list[Flag]:
    """Flags for attacks that change their loss or their targets because the model has too few classes."""
    notes = []
    for stage in stages:
        attack = stage.attack
        ranks = [attempt.rank + 1 for part in stage.rounds for attempt in part.attempts]
        targets, loss = max([attack.targets, *ranks]), attack.loss
        needed = 4 if targets else 3
        if loss == "dlr" and num_classes < needed:
            kind = "the targeted dlr loss" if targets else "dlr"
            notes.append(f"{kind} needs {needed} classes, the model has {num_classes}: margin was used")
        if targets > num_classes - 1:
            notes.append(f"the attack has {targets} target classes, but there are only {num_classes - 1} wrong classes")
    return [flag("yellow", "few_classes", note) for note in dict.fromkeys(notes)]


def black_box_flags(broken_by: Mapping[str, int], trials: Mapping[str, Sequence[str]], n: int) -> list[Flag]:
    """A flag if Square breaks images after gradient attacks have failed. `trials`: the stages of each threat."""
    broken = sum(broken_by.get(f"square {threat}", 0) for threat, stages in trials.items() if _square_follows(stages))
    if broken <= 0.002 * n:
        return []
    message = f"Square broke {broken} images ({broken / n:.2%}) that the gradient attacks had not broken"
    return [flag("red", "masked_gradients", message + ": gradients may be masked; try tier=max")]


def _square_follows(stages: Sequence[str]) -> bool:
    """Whether another attack comes before Square."""
    last = max((place for place, name in enumerate(stages) if name == "square"), default=0)
    return any(name != "square" for name in stages[:last])


def look_first(
    model: nn.Module, x: Tensor, y: Tensor, runtime: Runtime, *, classes: int | None, random_expected: bool
) -> tuple[Tensor, list[Flag]]:
    """Checks on a few images, and their logits; `classes` is the number of classes of the data, if known."""
    check_inputs(x, y, num_classes=getattr(model, "num_classes", None))
    with preserve_state(model), runtime.arithmetic("fp32"), torch.no_grad():
        clean = first_logits(model, x).float()
        check_logits(clean, y)
        flags = check_behaviour(model, x, clean, random_expected=random_expected)
    return clean, flags + other_classes(classes, clean.shape[1])
