"""Other models beside the one looked at: a run folder or weights file, a published model by its name, or a module."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hardtack.base.config import WrittenAsText, build
from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.evaluation.class_subset import ClassSubset
from hardtack.models import find_weights, load_model, rebuild
from hardtack.models.files import sha256
from hardtack.models.from_file import place_of, state_sha256


@dataclass(frozen=True, kw_only=True)
class Other(WrittenAsText):
    """`runs/b`, `timm:resnet50` (with its published weights), or `{name: timm:resnet50, pretrained: false}`.

    `weights` is a file for the network of that name. In Python `name` may be the module itself, called `label`.
    """

    name: Any
    pretrained: bool | None = None
    weights: str | None = None
    label: str = ""

    @classmethod
    def parse(cls, given: Any) -> Other:
        if isinstance(given, Other):
            return given
        if isinstance(given, nn.Module):
            return cls(name=given, label=type(given).__name__)
        if isinstance(given, str) and given.lstrip().startswith("{"):
            given = json.loads(given)
        found: Other = build(cls, {"name": given} if isinstance(given, str | Path) else given, path="others")
        said = " (no weights)" if found.is_untrained else ""
        return dataclasses.replace(found, label=found.label or _label(str(found.name)) + said)

    def __str__(self) -> str:
        if isinstance(self.name, nn.Module):
            return self.label
        said = {"pretrained": self.pretrained, "weights": self.weights}
        more = {key: value for key, value in said.items() if value is not None}
        return json.dumps({"name": str(self.name), **more}) if more else str(self.name)

    def fingerprint(self) -> str:
        """Of the weights, so that what was found with others does not pass for these; of a published model its name."""
        if isinstance(self.name, nn.Module):
            return state_sha256(self.name)[:12]
        if self.weights or self.is_stored:
            return sha256(find_weights(self.weights or self.name))[:12]
        place = place_of(str(self.name))
        if place is not None and (file := Path(place.source).expanduser()).is_file():
            return sha256(file)[:12]  # what a function of the user's makes follows from its code
        return str(self)

    @property
    def is_stored(self) -> bool:
        """A run folder or weights file, which says by itself what it holds."""
        return place_of(str(self.name)) is None and Path(self.name).expanduser().exists()

    @property
    def is_untrained(self) -> bool:
        """Whether its weights are random; what a module or a function of the user's has, nobody knows."""
        known = isinstance(self.name, nn.Module) or self.weights or place_of(str(self.name)) or self.is_stored
        return self.pretrained is False and not known

    def load(self, like: nn.Module, shape: tuple[int, ...]) -> nn.Module:
        """The model, answering in the classes of `like` and taking its images (C×H×W)."""
        own = isinstance(self.name, nn.Module)  # a copy: the caller's stays on its device, and trainable
        model = copy.deepcopy(self.name) if own else self._load(like, shape[-1])
        if isinstance(like, ClassSubset) and _classes(model) == _classes(like.model):
            model = ClassSubset(model, like.classes)
        if None not in (counts := (_classes(model), _classes(like))) and counts[0] != counts[1]:
            raise UserError(
                f"'{self}' has {counts[0]} classes, the analysed model has {counts[1]}: "
                "name models with the same classes"
            )
        size = getattr(model, "image_size", None) or getattr(getattr(model, "model", None), "image_size", None)
        return model if size is None or shape[-2:] == (size, size) else Resized(model, size)

    def _load(self, like: nn.Module, side: int) -> nn.Module:
        if self.is_stored:
            return rebuild(self.name)
        name = str(self.name)
        if place_of(name) is None and not name.startswith("timm:") and name not in models:
            find_weights(name)  # says that it is not there
        published = self.weights is None and place_of(name) is None if self.pretrained is None else self.pretrained
        if published:
            return load_model(name, pretrained=True)
        classes = None if self.weights else _classes(like)
        return load_model(name, num_classes=classes, image_size=side, weights=self.weights, seed=0)


def read_others(given: Any) -> tuple[Other, ...]:
    """From `a,b`, a list of any of the above, or in Python `{"a resnet": module, …}`; each has a label of its own."""
    if not given:
        return ()
    if isinstance(given, Mapping) and all(isinstance(one, nn.Module) for one in given.values()):
        found = [Other(name=module, label=str(label)) for label, module in given.items()]
    else:
        several = given.split(",") if isinstance(given, str) and not given.lstrip().startswith("{") else given
        several = several if isinstance(several, list | tuple) else [several]
        found = [Other.parse(one.strip() if isinstance(one, str) else one) for one in several]
    labels = [one.label for one in found]
    return tuple(
        dataclasses.replace(one, label=f"{one.label} ({labels[:place].count(one.label) + 1})")
        if labels.count(one.label) > 1
        else one
        for place, one in enumerate(found)
    )


class Resized(nn.Module):
    """A model that sees its images brought to the size it takes."""

    def __init__(self, model: nn.Module, size: int) -> None:
        super().__init__()
        self.model, self.size = model, size

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.interpolate(x, (self.size, self.size), mode="bilinear", antialias=True)
        logits: Tensor = self.model(x)
        return logits


def _label(name: str) -> str:
    path = Path(name)
    return path.parent.parent.name if path.parent.name == "checkpoints" else path.name


def _classes(model: nn.Module) -> int | None:
    said = getattr(model, "num_classes", None)
    return said if isinstance(said, int) else None
