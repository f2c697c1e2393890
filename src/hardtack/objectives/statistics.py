"""Separate batch-norm statistics for clean and attacked images (Xie et al. 2020, AdvProp).

Attacked images have other means and variances inside a network than clean ones; one running average of both fits
neither. Here each kind is normalised by its own batch and has its own running statistics. Scale and shift stay
shared. The model itself holds one of the two sets, with which it is evaluated, saved and used; the other set is here.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from hardtack.base.errors import UserError

Separate = Literal["attacked", "clean"]

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class TwoBatches:
    """Logits of a clean and an attacked batch: computed in one pass, or each with its own batch-norm statistics.

    `separate` names the kind of images whose statistics the model itself holds; None is one pass for both.
    """

    def __init__(self, model: nn.Module, separate: Separate | None) -> None:
        self.second = None if separate is None else SecondStatistics(model)
        self.clean = self.second if self.second is not None and separate == "attacked" else model
        self.attacked = self.second if self.second is not None and separate == "clean" else model

    def __call__(self, x: Tensor, x_adv: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of both batches in fp32. In one pass, batch-norm layers see them as one batch."""
        if self.second is None:
            logits = self.attacked(torch.cat([x, x_adv])).float()
            return logits[: len(x)], logits[len(x) :]
        return self.clean(x).float(), self.attacked(x_adv).float()


class SecondStatistics(nn.Module):
    """The same network with its own copy of the batch-norm statistics."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.names: dict[str, str] = {}  # of a statistic in the model: of its buffer here
        for path, module in model.named_modules():
            if isinstance(module, _BatchNorm) and module.track_running_stats:
                for kind in _STATISTICS:
                    name = f"{path}.{kind}".lstrip(".")
                    self.names[name] = name.replace(".", "/")
                    self.register_buffer(self.names[name], module.get_buffer(kind).detach().clone())
        if not self.names:
            raise UserError("separate_statistics needs a model with batch norm, and this one has none; leave it out")

    def forward(self, x: Tensor) -> Tensor:
        own = {name: self.get_buffer(buffer) for name, buffer in self.names.items()}
        return functional_call(self.model, own, (x,))
