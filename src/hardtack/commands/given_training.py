"""`ht.train` with a module or data of Python: they get names that a recipe can hold, for the time of the training."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from hardtack.base.config import build, merge, nested, plain, read_yaml
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.printable import printable
from hardtack.data.given.kept import is_object, kept
from hardtack.models import ModelConfig, find_weights, load_weights
from hardtack.models.given import takes_one_channel
from hardtack.models.kept import kept_module, weights_sha256
from hardtack.objectives.call import with_attack
from hardtack.results.store import read_metrics
from hardtack.training import Recipe

Values = dict[str, Any]


def check_recipe(recipe: Any) -> None:
    """Refuse a module or data where a recipe belongs."""
    if isinstance(recipe, nn.Module) or not (recipe is None or isinstance(recipe, str | Path | Recipe)):
        kind = type(recipe).__name__
        raise UserError(f"the first argument is a recipe, found {kind}: ht.train(model=net, data=(x, y), …)")


def module_of(value: Any) -> nn.Module | None:
    """The module, where a model is given and not named."""
    if value is None or isinstance(value, str | Mapping | ModelConfig | nn.Module):
        return value if isinstance(value, nn.Module) else None
    if isinstance(value, type):
        raise UserError(f"model must be a module, found the class {value.__name__}; make one: {value.__name__}(…)")
    kind = type(value).__name__
    raise UserError(f"model must be a torch.nn.Module, whose weights are trained, or the name of a model, found {kind}")


@contextlib.contextmanager
def named(values: Mapping[str, Any], further: Mapping[str, Any], *, with_data: bool = False) -> Iterator[Values]:
    """Sections of a recipe, in which a module and data have names that hold inside; `further`: settings over them.

    `with_data`: they stand over a recipe that names data.
    """
    _check_names(values)
    sections = {key: value for key, value in values.items() if value is not None}
    module, data = module_of(values.get("model")), values.get("data")
    with contextlib.ExitStack() as stack:
        channels = 3
        if is_object(data):
            takes_grey = functools.partial(takes_one_channel, module) if module is not None else None
            images = stack.enter_context(kept(data, takes_grey=takes_grey))
            sections["data"], channels = {"name": images.name}, images.shape[0]
        elif module is not None and data is None and not (with_data or any(key.startswith("data") for key in further)):
            raise UserError("name the images to train on: data=(x, y), a data set, or the name of one")
        if module is not None:
            name = stack.enter_context(kept_module(module, channels=channels))
            sections["model"] = {"name": name}
        yield merge(nested(sections), nested(further))


def _check_names(values: Mapping[str, Any]) -> None:
    sections = [item.name for item in dataclasses.fields(Recipe)]
    for key in values:
        if key.partition(".")[0] not in sections:
            hint = did_you_mean(key, [*sections, *_SHORT, "threat", "quiet", "settings"])
            raise UserError(f"ht.train has no keyword '{key}'{hint or '; sections: ' + ', '.join(sections)}")


def with_short(values: Values, recipe: Path | None, short: Mapping[str, Any]) -> Values:
    """The sections, with what the short keywords of `ht.train` set in them."""
    given = {key: value for key, value in short.items() if value is not None}
    threat = given.pop("threat", None)
    values = nested({**values, **{_SHORT[key]: value for key, value in given.items()}})
    if threat is None:
        return values
    section = values.get("objective") or (read_yaml(recipe).get("objective") if recipe is not None else None)
    if section is not None and not isinstance(section, str | Mapping):
        raise UserError("threat: the objective that was made in Python already has its settings")
    section = {"name": section} if isinstance(section, str) else dict(section or {})
    return {**values, "objective": with_attack({"name": "standard", **section, "threat": plain(threat)})}


_SHORT = {"epochs": "train.epochs", "batch_size": "train.batch_size", "lr": "optimiser.lr"}


def changed(recipe: Recipe, values: Values) -> Recipe:
    """The recipe with other values in some sections; the others stay as they were made in Python."""
    sections = {key: merge({key: plain(getattr(recipe, key))}, {key: value})[key] for key, value in values.items()}
    rest = {item.name: getattr(recipe, item.name) for item in dataclasses.fields(Recipe)}
    made: Recipe = build(Recipe, {**rest, **sections})
    return made


def take_weights(module: nn.Module, folder: Path) -> None:
    """Put the weights of the best checkpoint of a run into the module that was given.

    If the run began with other weights than the module had, a line says so: what was asked for may have been to train
    the module from where it was.
    """
    had = weights_sha256(module)
    load_weights(module, find_weights(folder))
    start = next((line for line in read_metrics(folder) if line.get("kind") == "start"), {})
    if start.get("weights_sha256", had) != had != weights_sha256(module) and int(os.environ.get("RANK", 0)) == 0:
        print(
            printable(
                f"note: the run in {folder} began with other weights than the module had; the module now has the "
                "weights of that run. To train from where it was, name another folder with output=…"
            ),
            file=sys.stderr,
        )
