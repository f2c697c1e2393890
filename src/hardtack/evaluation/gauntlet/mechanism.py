"""The contract of a defence mechanism: it takes an undefended core and a seeded draw, and returns a defended model.

    @mechanisms.register("ripple", help="x + a·sin(f·x): the gradient's sign alternates over tiny distances")
    def ripple(core: Core, draw: Draw) -> Defence:
        wave = Ripple(draw.uniform("amplitude", 0.005, 0.02), draw.log_uniform("frequency", 200, 2000))
        return Defence(model=nn.Sequential(wave, core.model))

A mechanism is one decorated function in a file of the folder `mechanisms` (its family), or in a file of the user's
(`--import FILE.py`). The truth about the defended model is computed by attacks that know the mechanism (truth.py).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import mechanisms
from hardtack.threats import Threat

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Core:
    """An undefended model, the images of the benchmark, and what defences with trained parts are fitted on.

    model          from images N×3×H×W in [0,1] to logits
    robust         an adversarially trained model for the same classes; None: mechanisms that need it are left out
    x, y           the images that evaluators attack
    train_x/_y     images that parts of a defence are fitted on
    """

    name: str
    model: nn.Module
    x: Tensor
    y: Tensor
    train_x: Tensor
    train_y: Tensor
    threat: Threat
    classes: int
    robust: nn.Module | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return tuple(self.x.shape[1:])

    def robust_model(self) -> nn.Module:
        """The adversarially trained model, for the mechanisms that are built around it."""
        if self.robust is None:
            raise MissingRobustModel(f"core '{self.name}' has no adversarially trained model; give robust=RUN")
        return self.robust


class MissingRobustModel(UserError):
    """A mechanism needs an adversarially trained model, and the core has none."""


class Draw:
    """The parameters of a mechanism. Those drawn from the seeded generator differ from seed to seed.

    Every number gets a name, under which the table of the gauntlet shows it.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) * 1000 + seed)
        self.parameters: dict[str, Any] = {}

    def uniform(self, name: str, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        share = torch.rand((), generator=self.generator).item()
        return self._record(name, float(f"{low + share * (high - low):.4g}"))

    def log_uniform(self, name: str, low: float, high: float) -> float:
        """A number whose logarithm is uniform."""
        share = torch.rand((), generator=self.generator).item()
        return self._record(name, float(f"{math.exp(math.log(low) + share * math.log(high / low)):.4g}"))

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return self._record(name, int(torch.randint(low, high + 1, (), generator=self.generator)))

    def choice(self, name: str, values: Sequence[Value]) -> Value:
        """One of the values."""
        return self._record(name, values[int(torch.randint(len(values), (), generator=self.generator))])

    def normal(self, *shape: int) -> Tensor:
        """A tensor of standard normal numbers; too large for the table."""
        return torch.randn(*shape, generator=self.generator)

    def signs(self, *shape: int) -> Tensor:
        """A tensor of −1 and 1."""
        return torch.randint(2, shape, generator=self.generator).float() * 2 - 1

    def mask(self, share: float, *shape: int) -> Tensor:
        """A tensor of ones, in this share of its entries, and zeros."""
        return (torch.rand(*shape, generator=self.generator) < share).float()

    def _record(self, name: str, value: Value) -> Value:
        self.parameters[name] = value
        return value


@dataclass(frozen=True, kw_only=True)
class Defence:
    """A defended model, and what is known about it.

    model        what an evaluator is given
    insiders     differentiable models that an attacker who knows the mechanism takes gradients of. The truth's attacks
                 craft on them and on the core, and verify every image on the deployed model.
    deployed     what users of the model get, where `model` answers evaluators differently: gradients off, fp32, images
                 one by one, first call. None: the model itself
    random       the answers are random: an image counts with the share of draws in which it is classified correctly
    honest       the model hides nothing. A red flag on it is a false alarm.
    same_values  the deployed model returns the logits of the core
    parameters   numbers that were drawn, for the table
    """

    model: nn.Module
    insiders: tuple[nn.Module, ...] = ()
    deployed: nn.Module | None = None
    random: bool = False
    honest: bool = False
    same_values: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> nn.Module:
        """The model whose answers count."""
        return self.model if self.deployed is None else self.deployed


def build_defence(name: str, core: Core, *, seed: int) -> Defence:
    """The mechanism of this name around the core, with the parameters of this seed, on the device of the images.

    Every call builds a new model, so that a defence that counts its calls starts at zero.
    """
    draw, entry = Draw(name, seed), mechanisms.get(name)
    defence = entry.make(core, draw, **entry.presets)
    if not isinstance(defence, Defence):
        raise UserError(f"the defence mechanism '{name}' must return a Defence, found {type(defence).__name__}")
    for model in (defence.model, *defence.insiders, defence.target):
        model.to(core.x.device).eval()
    object.__setattr__(defence, "parameters", {**draw.parameters, **defence.parameters})
    return defence
