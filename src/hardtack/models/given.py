"""Models that a user gives in Python: a module, or a function of images, which becomes one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.models.classifier import evaluating
from hardtack.models.first_images import no_tensor, reason

AnyModel = nn.Module | Callable[[Tensor], Any]
"""A model as a user gives it: a module or a function, from images N×C×H×W in [0,1] to logits."""


class FunctionModel(nn.Module):
    """A function from [0,1] pixels to logits as a module.

    Modules that the function refers to (in its closure, its globals by name, its bound object, a partial's arguments)
    are parts of this one: they are switched to eval mode and moved to the device with it.
    """

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(dict.fromkeys(_modules_of(function)))

    def forward(self, x: Tensor) -> Tensor:
        out = self.function(x)
        out = out if isinstance(out, Tensor) else getattr(out, "logits", out)
        if not isinstance(out, Tensor):
            raise no_tensor(out)
        return out


def as_module(model: Any, call: str) -> nn.Module:
    """The module itself, or one around a function; a sentence for everything else. `call`: what takes the model."""
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, type):
        name = model.__name__
        raise UserError(f"{call} takes a model, found the class {name}; make one: {name}(…)")
    if callable(model):
        return FunctionModel(model)
    raise UserError(f"{call} takes a model, found {type(model).__name__}; ht.load_model(NAME) makes one")


def check_kept(model: nn.Module, folder: Any) -> None:
    """Refuse to keep results of a function: what it refers to beside modules decides them, and is not known."""
    if folder is not None and isinstance(model, FunctionModel):
        raise UserError("results in a folder need a model with weights: make the function a torch.nn.Module")


def takes_one_channel(model: nn.Module, image: Tensor) -> bool:
    """Whether a model takes this image of one channel, as it is; one that takes it in three neither is refused."""
    weight = next((each for each in model.parameters() if each.is_floating_point()), image)
    image = image.to(weight.device, weight.dtype)  # a wrong type of the weights is said where all images go through
    problems = [_problem(model, x) for x in (image, image.expand(-1, 3, -1, -1))]
    if all(problems):
        size = "×".join(map(str, image.shape[2:]))
        told = f"with one channel: {problems[0]}; with three equal ones: {problems[1]}"
        raise UserError(f"the model takes no grey images of {size} ({told})")
    return not problems[0]


def _problem(model: nn.Module, x: Tensor) -> str:
    """What a model says of an image that does not fit it; empty for one that does."""
    try:
        with evaluating(model), torch.no_grad():
            model(x)
    except Exception as error:  # whatever a module of somebody's raises
        return str(error) if isinstance(error, UserError) else reason(error)
    return ""


def _modules_of(function: Any, depth: int = 3) -> Iterator[nn.Module]:
    """The modules that a function refers to; of functions that it calls as well."""
    if isinstance(function, nn.Module):
        yield function
        return
    if not callable(function) or depth == 0:
        return
    values: list[Any] = []
    if isinstance(function, functools.partial):
        values = [function.func, *function.args, *function.keywords.values()]
    else:
        bound = getattr(function, "__self__", None)
        owner = bound if bound is not None and not inspect.ismodule(bound) else function
        plain = getattr(function, "__func__", function)
        if not inspect.isroutine(function):  # an object that can be called
            plain = getattr(type(function), "__call__", None)  # noqa: B004
        values = [bound, *getattr(owner, "__dict__", {}).values()]
        if inspect.isfunction(plain):
            names = inspect.getclosurevars(plain)
            values += [*names.nonlocals.values(), *names.globals.values(), *(plain.__defaults__ or ())]
    for value in values:
        if isinstance(value, nn.Module):
            yield value
        elif inspect.isfunction(value) or isinstance(value, functools.partial) or inspect.ismethod(value):
            yield from _modules_of(value, depth - 1)
