"""Clean and attacked images with batch-norm statistics of their own (Xie et al. 2020, AdvProp).

A network sees other means and variances in attacked images than in clean ones; one running average of both fits
neither. Here each kind is normalised by its own batch and feeds its own running statistics. Scale and shift stay
shared. The model itself holds one of the two sets, the one it is judged, saved and used with; the other lives here.
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


class Paths:
    """How clean and attacked images pass the network: as one batch, or each with statistics of its own."""

    def __init__(self, model: nn.Module, separate: Separate | None) -> None:
        self.second = None if separate is None else SecondStatistics(model)
        self.clean = self.second if self.second is not None and separate == "attacked" else model
        self.attacked = self.second if self.second is not None and separate == "clean" else model

    def __call__(self, x: Tensor, x_adv: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of both. Together they are one call, so that batch-norm layers see them as one batch."""
        if self.second is None:
            logits = self.attacked(torch.cat([x, x_adv])).float()
            return logits[: len(x)], logits[len(x) :]
        return self.clean(x).float(), self.attacked(x_adv).float()


class SecondStatistics(nn.Module):
    """The same network, with its own copy of the batch-norm statistics."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.names: dict[str, str] = {}
        for path, module in model.named_modules():
            if isinstance(module, _BatchNorm) and module.track_running_stats:
                for kind in _STATISTICS:
                    name = f"{path}.{kind}".lstrip(".")
                    self.names[name] = name.replace(".", "/")
                    self.register_buffer(self.names[name], getattr(module, kind).detach().clone())
        if not self.names:
            raise UserError("separate_statistics is for models with batch norm, and this one has none; leave it out")

    def forward(self, x: Tensor) -> Tensor:
        return functional_call(self.model, {name: getattr(self, mine) for name, mine in self.names.items()}, (x,))
