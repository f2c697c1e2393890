"""format=hub: a folder in Hugging Face's layout, which hardtack loads by its path, and timm too where it can.

config.json         the architecture, in timm's form where timm can build it
model.safetensors   the weights, under the network's own names, with what hardtack needs to build it
README.md           the model card
evidence/           the evidence records of the card's numbers
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.exports.comparison import Predict
from hardtack.exports.subject import Subject
from hardtack.models import Classifier, rebuild, save_weights
from hardtack.models.kept import kept_module

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def write(subject: Subject, folder: Path, facts: Mapping[str, Any]) -> None:
    """The weights and the configuration; the card is written when both have been checked."""
    model = _classifier(subject)
    metadata = {"architecture": model.architecture, "classes": subject.classes}
    save_weights(folder / WEIGHTS, model.body, metadata=metadata)
    timm_config = _timm_config(model, subject)
    config: dict[str, Any] = {
        "library_name": "timm" if timm_config else "hardtack",
        "architecture": model.architecture["name"],
        "num_classes": model.num_classes,
        **timm_config,
        **({"label_names": subject.classes} if subject.classes else {}),
        "hardtack": {**{key: facts[key] for key in facts if key != "classes"}, "architecture": model.architecture},
    }
    write_text(folder / CONFIG, json.dumps(config, indent=2, default=str, ensure_ascii=False) + "\n")


def read(subject: Subject, folder: Path) -> Predict:
    """The folder as hardtack loads it: built from its files; of a module of Python, a copy with their weights."""
    with kept_module(subject.model):
        return _predict(rebuild(folder))


def read_with_timm(subject: Subject, folder: Path) -> Predict:
    """The folder as timm loads it, behind the model's normalisation."""
    import timm

    body = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    return _predict(nn.Sequential(_classifier(subject).normalise, body))


def loads_with_timm(folder: Path) -> bool:
    """Whether the configuration is one of timm's."""
    return bool(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["library_name"] == "timm")


def forget_timm(folder: Path) -> None:
    """Make the configuration hardtack's alone: timm builds another network from it."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config = {key: value for key, value in config.items() if key not in ("model_args", "pretrained_cfg")}
    config |= {"library_name": "hardtack", "architecture": config["hardtack"]["architecture"]["name"]}
    write_text(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _classifier(subject: Subject) -> Classifier:
    if subject.classifier is None:
        raise UserError(
            "format=hub needs to know the normalisation: give the network as ht.wrap(module, mean=…, std=…)"
        )
    return subject.classifier


def _predict(model: nn.Module) -> Predict:
    def predict(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = model(x)
        return logits

    return predict


def _timm_config(model: Classifier, subject: Subject) -> dict[str, Any]:
    """What timm's `create_model("local-dir:…")` reads; empty for networks that are not timm's."""
    body, name = model.body, model.architecture["name"]
    published: Mapping[str, Any] = getattr(body, "pretrained_cfg", None) or {}
    if not type(body).__module__.startswith("timm.") or not published.get("architecture"):
        return {}
    arguments = getattr(body, "_model_args", None)
    if arguments is None:  # older versions of timm do not keep them
        if not name.startswith("timm:"):
            return {}
        fixed = published.get("fixed_input_size") and model.image_size is not None
        arguments = {**model.architecture["options"], **({"img_size": model.image_size} if fixed else {})}
    arguments = {key: value for key, value in arguments.items() if key != "num_classes"}
    try:
        json.dumps(arguments)
    except TypeError:  # an activation, which JSON cannot name
        return {}
    channels, height, width = subject.shape
    kept = ("fixed_input_size", "interpolation", "crop_mode", "first_conv", "classifier")
    made_for = tuple(published.get("input_size", ())) == subject.shape
    return {
        "architecture": published["architecture"],
        "num_features": getattr(body, "num_features", None),
        "model_args": arguments,
        "pretrained_cfg": {
            **{key: published[key] for key in kept if key in published},
            "tag": subject.name, "custom_load": False, "input_size": [channels, height, width], "pool_size": None,
            "crop_pct": published.get("crop_pct", 1.0) if made_for else 1.0,
            "mean": model.architecture["mean"], "std": model.architecture["std"], "num_classes": model.num_classes,
        },
    }  # fmt: skip
