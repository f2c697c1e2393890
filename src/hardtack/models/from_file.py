"""A network of the user's own, named by where it stands: `mine.py:build`, or `package.module:Net`.

What is named is a function that returns a network, a class of networks, or a network. Naming it runs its code, as
`--import` does.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError, did_you_mean
from hardtack.models.classifier import Classifier, Triple, as_triple, probe, wrap
from hardtack.models.first_images import reason
from hardtack.models.user_code import Code, import_module, is_own, run_file, telling, was_named

LIKELY_SIZES = (32, 224)  # tried where nothing says how large the images are


class Place(NamedTuple):
    """Where a network stands: a file or a dotted module, and the name in it."""

    source: str
    attribute: str

    @property
    def is_file(self) -> bool:
        return self.source.endswith(".py") or "/" in self.source or "\\" in self.source

    @property
    def short(self) -> str:
        """What results call it: `mine.py:build`, wherever the file lies."""
        return f"{Path(self.source).name if self.is_file else self.source}:{self.attribute}"

    @property
    def folder_name(self) -> str:
        return f"{Path(self.source).stem if self.is_file else self.source.replace('.', '-')}-{self.attribute}"


def place_of(name: str) -> Place | None:
    """The place that a model's name says; None for a name of ours or of timm's, and a module given in Python."""
    if name.startswith(("timm:", "given:")):
        return None
    if name.endswith(".py"):
        return Place(name, "")
    source, colon, attribute = name.rpartition(":")
    return Place(source, attribute) if colon else None


@dataclass(frozen=True, kw_only=True)
class Own:
    """A network of the user's, what it says of itself, and a digest of its code."""

    module: nn.Module
    num_classes: int
    image_size: int | None
    mean: Triple
    std: Triple
    code_sha256: str


def make_own(place: Place, *, num_classes: int, image_size: int | None, options: Mapping[str, Any]) -> Own:
    """Call what stands there; `num_classes` and `image_size` go to it only where it takes them by name."""
    code = run_file(place.source) if place.is_file else import_module(place.source)
    with code.beside():
        make = _find(code, place)
        taken = _parameters(make)
        sizes = {"num_classes": num_classes, "image_size": image_size}
        sizes_taken = {name: value for name, value in sizes.items() if name in taken and value is not None}
        _check_options(place, taken, {**options, **sizes_taken})
        with telling(f"{place.short} failed", code.file):
            made = copy.deepcopy(make) if isinstance(make, nn.Module) else make(**options, **sizes_taken)
        if not isinstance(made, nn.Module):
            raise UserError(f"{place.short} must return a torch.nn.Module, found {type(made).__name__}")
        size = image_size or _default_size(taken)
        inner, mean, std = _unwrapped(made)
        logits = _logits(place, inner, size)
    if "num_classes" in sizes_taken and logits != num_classes:
        raise UserError(f"{place.short} returns {logits} logits, but num_classes={num_classes} was given")
    return Own(
        module=inner, num_classes=logits, image_size=size, mean=mean, std=std, code_sha256=code.digest
    )  # fmt: skip


def working_size(module: nn.Module) -> int | None:
    """The first of the likely sizes that a network takes."""
    for size in LIKELY_SIZES:
        with contextlib.suppress(Exception):
            _probed(module, size)
            return size
    return None


def _probed(module: nn.Module, size: int) -> Tensor:
    """Logits of one grey image; of a normalised one where the network takes no other."""
    try:
        return probe(wrap(module), size)
    except UserError:
        raise
    except Exception:
        with contextlib.suppress(Exception):
            return probe(wrap(module), size, low=-2.0, high=2.0)
        raise


def named_place(name: str) -> str | None:
    """What `model=` would take for a network whose code this process was told to run, from the name results have."""
    place = place_of(name)
    source = None if place is None else was_named(place.source)
    if place is None or source is None or not is_own(source, place.attribute):
        return None
    return f"{source}:{place.attribute}"


def state_sha256(module: nn.Module) -> str:
    """Of the weights and buffers as they are: a network that loads them itself has no file to speak for it."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    """Whether two networks, made from different seeds, have the same parameters: then these are not random."""
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def _unwrapped(made: nn.Module) -> tuple[nn.Module, Triple, Triple]:
    """The network before normalisation: what `ht.wrap` put in front of it is put there again."""
    inner = made.body if isinstance(made, Classifier) else made
    written = made.architecture if isinstance(made, Classifier) else {"mean": None, "std": None}
    return inner, as_triple("mean", written["mean"], default=0.0), as_triple("std", written["std"], default=1.0)


def _logits(place: Place, module: nn.Module, size: int | None) -> int:
    """How many classes it tells apart, from one grey image."""
    size = size or working_size(module) or LIKELY_SIZES[-1]
    try:
        out = _probed(module, size)
    except UserError as error:
        raise UserError(f"{place.short}: {error}") from None
    except (NameError, AttributeError, ImportError) as error:  # of its own code, whatever the size
        raise UserError(
            f"{place.short} failed on its first image ({reason(error)}); --debug shows all of it"
        ) from error
    except Exception as error:
        hint = "say which it takes by model.image_size (Python: image_size)"
        raise UserError(f"{place.short} cannot take {size}×{size} images ({reason(error)}); {hint}") from error
    if out.ndim != 2 or len(out) != 1 or out.shape[1] < 2:
        shape = "×".join(map(str, out.shape))
        raise UserError(f"{place.short} must return logits N×num_classes; one {size}×{size} image gave {shape}")
    return out.shape[1]


# ---------------------------------------------------------------- what it is called with


def _parameters(make: Any) -> dict[str, inspect.Parameter]:
    try:
        return {} if isinstance(make, nn.Module) else dict(inspect.signature(make).parameters)
    except (TypeError, ValueError):  # made in C, and silent about itself
        return {}


def _default_size(taken: Mapping[str, inspect.Parameter]) -> int | None:
    default = taken["image_size"].default if "image_size" in taken else None
    return default if isinstance(default, int) else None


def _check_options(place: Place, taken: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Names only: what a value may be is for the function to say."""
    kinds = inspect.Parameter
    if any(parameter.kind is kinds.VAR_KEYWORD for parameter in taken.values()):
        return
    for name in given:
        if name not in taken:
            hint = did_you_mean(name, taken) or f"; it takes: {', '.join(taken) or 'nothing'}"
            raise UserError(f"{place.short} has no option '{name}'{hint}")
    for name, parameter in taken.items():
        if parameter.default is kinds.empty and parameter.kind is not kinds.VAR_POSITIONAL and name not in given:
            word = name if name in ("num_classes", "image_size") else f"options.{name}"
            raise UserError(f"{place.short} needs '{name}': give model.{word}=VALUE (Python: {name}=VALUE)")


def _find(code: Code, place: Place) -> Any:
    public = {name: value for name, value in vars(code.module).items() if callable(value) and not name.startswith("_")}
    own = [name for name, value in public.items() if getattr(value, "__module__", "") == code.module.__name__]
    listed = f"; it has: {', '.join(own) or 'none'}"
    if not place.attribute:
        raise UserError(f"say which function or class of {place.source} makes the model: {place.source}:NAME{listed}")
    target = getattr(code.module, place.attribute, None)
    if target is None:
        hint = did_you_mean(place.attribute, own or public) or listed
        raise UserError(f"{place.source} has no '{place.attribute}'{hint}")
    if not callable(target):
        raise UserError(f"{place.short} is of type {type(target).__name__}, not a function or class that makes a model")
    return target
