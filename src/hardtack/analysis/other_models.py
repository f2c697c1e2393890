"""Further models beside the analysed one: a run folder or weights file, the name of a published model, or a module."""

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

    `weights` is a weights file for the network `name`. In Python `name` may be a module; `label` is then its name.
    """

    name: Any
    pretrained: bool | None = None
    weights: str | None = None
    label: str = ""

    @classmethod
    def parse(cls, value: Any) -> Other:
        if isinstance(value, Other):
            return value
        if isinstance(value, nn.Module):
            return cls(name=value, label=type(value).__name__)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = json.loads(value)
        other: Other = build(cls, {"name": value} if isinstance(value, str | Path) else value, path="others")
        suffix = " (no weights)" if other.is_untrained else ""
        return dataclasses.replace(other, label=other.label or _label(str(other.name)) + suffix)

    def __str__(self) -> str:
        if isinstance(self.name, nn.Module):
            return self.label
        options = {"pretrained": self.pretrained, "weights": self.weights}
        more = {key: value for key, value in options.items() if value is not None}
        return json.dumps({"name": str(self.name), **more}) if more else str(self.name)

    def fingerprint(self) -> str:
        """The digest of the weights, or the name of a published model. It is part of the analysis' id."""
        if isinstance(self.name, nn.Module):
            return state_sha256(self.name)[:12]
        if self.weights or self.is_stored:
            return sha256(find_weights(self.weights or self.name))[:12]
        place = place_of(str(self.name))
        if place is not None and (file := Path(place.source).expanduser()).is_file():
            return sha256(file)[:12]  # the model is made by a user's function: the digest is that of its code
        return str(self)

    @property
    def is_stored(self) -> bool:
        """Whether the name is a run folder or a weights file, which also store the architecture."""
        return place_of(str(self.name)) is None and Path(self.name).expanduser().exists()

    @property
    def is_untrained(self) -> bool:
        """Whether its weights are certainly random. A user's module or function may have loaded weights."""
        may_be_trained = isinstance(self.name, nn.Module) or self.weights or place_of(str(self.name)) or self.is_stored
        return self.pretrained is False and not may_be_trained

    def load(self, like: nn.Module, shape: tuple[int, ...]) -> nn.Module:
        """Load the model for the classes of the model `like` and for images of this shape (C×H×W)."""
        own = isinstance(self.name, nn.Module)  # it is copied: the caller's module is not moved or frozen
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
            find_weights(name)  # raises an error that names the missing file
        published = self.weights is None and place_of(name) is None if self.pretrained is None else self.pretrained
        if published:
            return load_model(name, pretrained=True)
        classes = None if self.weights else _classes(like)
        return load_model(name, num_classes=classes, image_size=side, weights=self.weights, seed=0)


def read_others(value: Any) -> tuple[Other, ...]:
    """Models from `a,b`, from a list, or in Python from `{"a resnet": module, …}`. Their labels are made unique."""
    if not value:
        return ()
    if isinstance(value, Mapping) and all(isinstance(other, nn.Module) for other in value.values()):
        others = [Other(name=module, label=str(label)) for label, module in value.items()]
    else:
        several = value.split(",") if isinstance(value, str) and not value.lstrip().startswith("{") else value
        several = several if isinstance(several, list | tuple) else [several]
        others = [Other.parse(other.strip() if isinstance(other, str) else other) for other in several]
    labels = [other.label for other in others]
    return tuple(
        dataclasses.replace(other, label=f"{other.label} ({labels[:place].count(other.label) + 1})")
        if labels.count(other.label) > 1
        else other
        for place, other in enumerate(others)
    )


class Resized(nn.Module):
    """A model whose input images are resized to the size that it requires."""

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
    classes = getattr(model, "num_classes", None)
    return classes if isinstance(classes, int) else None
