"""Data with fewer classes than the model: ImageNet-A has 200 of ImageNet's 1000, and only these can be predicted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.errors import UserError
from hardtack.data import Dataset


class ClassSubset(nn.Module):
    """A model restricted to `classes` (int64, ascending): it returns only their logits, N×len(classes)."""

    classes: Tensor

    def __init__(self, model: nn.Module, classes: Tensor) -> None:
        super().__init__()
        self.model, self.num_classes = model, len(classes)
        self.register_buffer("classes", classes, persistent=False)
        self.architecture = {"among": len(classes), "model": getattr(model, "architecture", None)}

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits[:, self.classes]


def class_subset(model: nn.Module, data: Any) -> tuple[nn.Module, Any]:
    """Model and data restricted to the classes that occur in the data; unchanged if all classes occur."""
    chosen = data.class_subset if isinstance(data, Dataset) else None
    if chosen is None:
        return model, data
    count = _logits(model, data)
    if count == len(chosen):  # a model made for these classes
        return model, data.among_its_classes()
    if count != data.num_classes:
        raise UserError(
            f"{data.name} has {len(chosen)} of {data.num_classes} classes; a model of {data.num_classes} or of "
            f"{len(chosen)} can be measured on it, found {count}"
        )
    return ClassSubset(model, chosen), data.among_its_classes()


def _logits(model: nn.Module, data: Dataset) -> int:
    classes = getattr(model, "num_classes", None)
    if isinstance(classes, int):
        return classes
    device = next(iter(model.parameters()), torch.empty(0)).device
    with preserve_state(model), torch.no_grad():
        return int(model(data.batch([0], device).x).shape[1])
