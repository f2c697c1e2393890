"""From a name, a recipe's `model:` section or a weights file to a `Classifier`."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

from hardtack.base.annotations import Shown
from hardtack.base.config import Number
from hardtack.base.errors import UserError
from hardtack.models.catalog import is_usual, make_body, published_classes
from hardtack.models.classifier import Classifier, Triple, as_triple
from hardtack.models.dtypes import check_values
from hardtack.models.files import find_weights, read_metadata, read_shapes
from hardtack.models.from_file import named_place, place_of
from hardtack.models.kept import given_classes, given_model, is_given, model_like
from hardtack.models.stored_architecture import check_numbers, limited_size
from hardtack.models.weights import adapt_state, load_weights

Channels = float | Sequence[float] | None
_FEW_CLASSES = 10_000  # a head for so many adds at most some millions of parameters


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Section `model:` of a recipe; its short form is just the name.

    name          an architecture: a name of hardtack list models, timm:NAME, or FILE.py:FUNCTION of your own
    num_classes   outputs; null: those of the weights, of the data, or of the published head
    image_size    side of the images in pixels; null: that of the data or of the architecture
    pretrained    start from the published weights of timm's model of this name
    weights       a .safetensors or .pt file, or a run folder, to start from
    adapt         take weights of a network of another size: positions and patches are resized, a head for other classes
                  starts new
    mean          mean of each channel for the normalisation; null: that of the weights, or 0.5
    std           standard deviation of each channel for the normalisation; null: that of the weights, or 0.5
    options       the architecture's own settings, such as {depth: 6, drop_path: 0.1} (hardtack describe NAME shows
                  them)
    """

    name: Annotated[str, Shown("model", "hardtack list models")] = "vit_tiny_patch4_32"
    num_classes: int | None = None
    image_size: int | None = None
    pretrained: bool = False
    weights: str | None = None
    adapt: bool = False
    mean: tuple[Number, Number, Number] | None = None
    std: tuple[Number, Number, Number] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def load_model(
    name: str | ModelConfig,
    *,
    num_classes: int | None = None,
    image_size: int | None = None,
    pretrained: bool = False,
    weights: str | Path | None = None,
    adapt: bool = False,
    mean: Channels = None,
    std: Channels = None,
    seed: int | None = None,
    **options: Any,
) -> Classifier:
    """A model by registered name, `timm:NAME` or `mine.py:build`, on the CPU and in eval mode.

    With `seed` the initial weights depend on nothing else, and the global random state stays as it was.
    Given a `ModelConfig`, what it states wins and the keywords (say, the data's size and statistics) fill
    what it leaves open. `num_classes` left at None is the weights file's, the published head's, or 10.
    Weights that were adapted (from a file with `adapt`, or published ones of our own models) leave the
    account of what was kept, resized and left new in the model's `fitted`.
    """
    if isinstance(name, ModelConfig):
        asked = name
    else:
        path = None if weights is None else str(weights)
        asked = ModelConfig(
            name=name, image_size=image_size, pretrained=pretrained, weights=path, adapt=adapt, options=options,
            mean=_given("mean", mean), std=_given("std", std),
        )  # fmt: skip
    if is_given(asked.name):
        bare = ModelConfig(name=asked.name)
        names = [item.name for item in dataclasses.fields(ModelConfig)]
        return given_model(asked.name, {key: asked for key in names if getattr(asked, key) != getattr(bare, key)})
    path = asked.weights or (None if weights is None else str(weights))
    adapt, pretrained = asked.adapt or adapt, asked.pretrained or pretrained
    if adapt and path is None and not pretrained:
        raise UserError("adapt resizes weights, and no weights were given: give weights=FILE")
    written = {} if path is None else read_metadata(find_weights(path)).get("architecture", {})
    wanted = asked.num_classes or (num_classes if isinstance(name, str) else None)
    num_classes = asked.num_classes or num_classes
    if num_classes is None:
        num_classes = written.get("num_classes") or published_classes(asked.name, pretrained) or 10
    with _seeded(seed):
        body = make_body(
            asked.name,
            num_classes=num_classes,
            image_size=asked.image_size or image_size,
            pretrained=pretrained,
            trained=path is not None,
            options={**options, **asked.options},
        )

    def settle(key: str, fallback: Channels) -> Triple:
        for value in (getattr(asked, key), written.get(key), getattr(body, key), fallback):
            if value is not None:
                return as_triple(key, value, default=0.5)
        return (0.5, 0.5, 0.5)

    if wanted and body.num_classes not in (None, wanted):
        raise UserError(f"{asked.name} has {body.num_classes} classes, not {wanted}")
    place = place_of(asked.name)
    code = {} if body.code_sha256 is None else {"code_sha256": body.code_sha256}
    check_values(body.module)
    model = Classifier(
        body.module,
        mean=settle("mean", mean),
        std=settle("std", std),
        num_classes=body.num_classes or num_classes,
        image_size=body.image_size,
        architecture={
            "name": place.short if place else asked.name,
            "options": body.options,
            "source": body.source,
            **code,
        },
    )
    if body.published is not None:
        published = body.published
        origin = f"the published weights of timm:{published.name}"
        model.fitted = adapt_state(model, published.state, origin=origin, architecture=published.architecture)
    if path is not None:
        model.fitted = load_weights(model, path, adapt=adapt).fitted
    return model.eval()


def rebuild(path: str | Path, *, checkpoint: str = "best") -> Classifier:
    """The model in a self-describing weights file (or run folder), with its weights, in eval mode."""
    file = find_weights(path, checkpoint=checkpoint)
    written = read_metadata(file).get("architecture")
    if not written:
        raise UserError(f"{file} does not say which model it holds; use load_model(NAME, weights='{file}')")
    if written["source"] == "wrapped":
        model = model_like(written)
        if model is None:
            if given_classes():
                raise UserError(f"{file} holds weights of a {written['name']}, and what is given is: {given_classes()}")
            raise UserError(
                f"{file} holds weights of your own module {written['name']}, and no file says how to make it: in "
                f"Python give it, model=…; on the command line name a function that makes it and the weights, "
                f"model=FILE.py:FUNCTION model.weights={file}"
            )
        load_weights(model, file)
        return model.eval()
    name = _named_code(written["name"], file) if place_of(written["name"]) else written["name"]
    # options go into their own section: as keywords they could name weights to load or to download
    asked = ModelConfig(name=name, options=written["options"])
    if not place_of(name):
        _check_size(asked, written, file)
    model = load_model(
        asked,
        num_classes=written.get("num_classes"),
        image_size=written.get("image_size"),
        mean=written["mean"],
        std=written["std"],
        weights=file,
        seed=0,  # every weight is replaced; the seed only keeps the global random state unchanged
    )
    if written.get("code_sha256") != model.architecture.get("code_sha256"):
        warnings.warn(f"{written['name']} has changed since {file} was written: it may be another network by now")
    return model


def _check_size(asked: ModelConfig, written: dict[str, Any], file: Path) -> None:
    """Refuse a description that would build a network far larger than the file; nothing is allocated."""
    classes, size = written.get("num_classes") or 10, written.get("image_size")
    numbers = _usual_parameters(asked, classes, size)
    if numbers is not None:  # to build on the meta device imports torch's compiler, which takes seconds
        check_numbers(numbers, read_shapes(file), file)
        return
    unbuilt = contextlib.suppress(RuntimeError, NotImplementedError, TypeError)  # impossible on the meta device
    with unbuilt, _seeded(0), limited_size(read_shapes(file), file):
        make_body(asked.name, num_classes=classes, image_size=size, trained=True, options=asked.options)


def _usual_parameters(asked: ModelConfig, classes: int, size: int | None) -> int | None:
    """The parameters of a built-in network at its usual size with its usual settings; None for any other."""
    from hardtack.models import facts

    known = facts.known().get(asked.name)
    if known is None or size not in (None, known.image_size) or classes > _FEW_CLASSES:
        return None
    return known.parameters if is_usual(asked.name, asked.options) else None


def _named_code(name: str, file: Path) -> str:
    """Where code stands that a weights file asks for. The file alone must not be able to run anything."""
    place = named_place(name)
    if place is None:
        source = name.rpartition(":")[0]
        again = f"hardtack --import {source} …, or " if source.endswith(".py") else ""
        raise UserError(
            f"{file} holds weights of {name}, a model of your own code, and loading weights never runs code; "
            f"name the code: {again}model={name} model.weights={file} (Python: load_model('{name}', weights='{file}'))"
        )
    return place


def parameter_count(module: nn.Module) -> int:
    """Trainable or not, each parameter counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def _given(key: str, value: Channels) -> Triple | None:
    return None if value is None else as_triple(key, value, default=0.5)


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Build on the CPU; with a seed, from that seed and without a trace in the global random state."""
    with torch.device("cpu"):
        if seed is None:
            yield
            return
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would reseed the GPUs as well, which fork_rng then would have to save
            torch.default_generator.manual_seed(seed)
            yield
