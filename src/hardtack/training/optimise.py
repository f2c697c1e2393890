"""Optimisers, and groups of parameters with their own learning rate and weight decay."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from hardtack.base.config import Number
from hardtack.base.errors import UserError
from hardtack.models.parts import depths, head
from hardtack.training.sharding import is_split
from hardtack.training.unused_settings import unused_settings

Decay = Annotated[float, Field(ge=0, lt=1)]
TABLES = ("pos_embed", "cls_token")  # added to the tokens, so not matrices, whatever their shape
_USED_BY = {**dict.fromkeys(("betas", "eps"), ("adamw",)), **dict.fromkeys(("momentum", "nesterov"), ("sgd",))}


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """Section `optimiser:` of a recipe.

    name           the optimiser
    lr             the highest learning rate, which the schedule multiplies
    weight_decay   decay of the weights (decoupled in adamw)
    betas          of adamw: decay of the running means of the gradient and of its square
    eps            of adamw: number added to the denominator
    momentum       of sgd: share of the previous update that is kept
    nesterov       of sgd: Nesterov's form of momentum
    decay_all      decay all parameters; false: biases, norms, position tables and what the model itself exempts do not
                   decay
    layer_decay    factor on the learning rate for every block between a parameter and the head; 1: the same rate
                   everywhere
    head_lr        factor on the learning rate of the head
    """

    name: Literal["adamw", "sgd"] = "adamw"
    lr: Number = 5e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    momentum: Decay = 0.9
    nesterov: bool = False
    decay_all: bool = False
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    head_lr: Annotated[float, Field(gt=0)] = 1.0

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise UserError(f"lr must be positive, found {self.lr}")

    def notes(self) -> Iterator[str]:
        yield from unused_settings("optimiser", self, _USED_BY)
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            yield "optimiser.nesterov has no effect: optimiser.momentum is 0"

    def scales(self, model: nn.Module) -> dict[str, float]:
        return rate_scales(model, layer_decay=self.layer_decay, head_lr=self.head_lr)

    def build(self, model: nn.Module, scales: dict[str, float] | None = None) -> torch.optim.Optimizer:
        """`scales` are the factors on the learning rate, where they were computed before the model was changed."""
        scales = self.scales(model) if scales is None else scales
        groups = parameter_groups(model, self.weight_decay, decay_all=self.decay_all, scales=scales)
        if not groups:
            raise UserError("no parameter is left to train: train.freeze covers all of them")
        _spare_the_compiler()
        fused = all(parameter.is_cuda and not is_split(parameter) for parameter in model.parameters())
        if self.name == "sgd":
            nesterov = self.nesterov and self.momentum > 0
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=nesterov, fused=fused)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused)


@torch.no_grad()
def take_step(optimiser: torch.optim.Optimizer) -> None:
    """What `optimiser.step()` does, without its wrappers, which import the compiler (see `_spare_the_compiler`)."""
    inspect.unwrap(type(optimiser).step)(optimiser)


def _spare_the_compiler() -> None:
    """Keep torch's optimisers from importing the compiler.

    They are marked as not to be compiled, and the first call of a marked function imports all of torch.compile to say
    so: some seconds in which nothing is trained. Here optimisers are never called in what is compiled, so that the
    functions may stay as they are.
    """
    for function in vars(torch.optim.Optimizer).values():
        plain = getattr(function, "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            plain.__dynamo_disable = plain


def parameter_groups(
    model: nn.Module, weight_decay: float, *, decay_all: bool, scales: dict[str, float] | None = None
) -> list[dict[str, Any]]:
    """Matrices and kernels decay; vectors, position tables and class tokens do not. One such pair for each scale."""
    exempt: set[str] = set()
    for name, module in model.named_modules():
        if hasattr(module, "no_weight_decay"):
            exempt |= {f"{name}.{item}".lstrip(".") for item in module.no_weight_decay()}
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            exempted = not decay_all and (parameter.ndim < 2 or name in exempt or name.rpartition(".")[2] in TABLES)
            scale = (scales or {}).get(name, 1.0)
            new = {"params": [], "weight_decay": 0.0 if exempted else weight_decay, "scale": scale}
            groups.setdefault((scale, exempted), new)["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def rate_scales(model: nn.Module, *, layer_decay: float = 1.0, head_lr: float = 1.0) -> dict[str, float]:
    """The factor on the learning rate of each parameter, by name."""
    scales = {name: 1.0 for name, _ in model.named_parameters()}
    if layer_decay != 1:
        depth_of, top = depths(model)
        scales = {name: layer_decay ** (top - depth) for name, depth in depth_of.items()}
    if head_lr != 1:
        names = head(model)
        if not names:
            raise UserError("optimiser.head_lr: this model has no layer with one output per class; leave it at 1")
        scales |= dict.fromkeys(names, head_lr)
    return scales


def set_rates(optimiser: torch.optim.Optimizer, lr: float, momentum: float | None) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)
        if momentum is not None:
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum
