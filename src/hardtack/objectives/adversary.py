"""The attack inside adversarial training: an ascent on the training batch, with a radius that may grow over epochs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent, Mode, ascent_step, preserve_state
from hardtack.attacks.pool.fast_copy import FastCopy, SearchModel, training_model
from hardtack.base import randomness
from hardtack.base.capture import Captured
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models.fast_layers import FastLayers
from hardtack.objectives.statistics import SecondStatistics


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """The radius of the training attack over the first epochs: a fraction of eps that rises to 1.

    epochs   epochs over which the radius rises to the whole of eps
    shape    rise along a line or a quarter of a sine
    hold     epoch: the radius is constant during an epoch, so that the first one is clean (the XCiT recipe); step: it
             rises at every step
    clean    epochs at the start without any attack
    step     length of the attack's steps meanwhile: scaled with the radius, or final: full from the start (the XCiT
             recipe)
    """

    epochs: Annotated[float, Field(ge=0)] = 0.0
    shape: Literal["linear", "sine"] = "linear"
    hold: Literal["step", "epoch"] = "step"
    clean: Annotated[float, Field(ge=0)] = 0.0
    step: Literal["scaled", "final"] = "scaled"

    def notes(self, *, epochs: float) -> Iterator[str]:
        """A sentence where the warm-up fills a run of this many epochs."""
        if self.clean + self.epochs >= epochs:
            yield "the whole run is warm-up: objective.warmup is not shorter than train.epochs"

    def factor(self, epoch: float) -> float:
        """The fraction of eps at this time."""
        epoch -= self.clean
        if epoch < 0:
            return 0.0
        if epoch >= self.epochs:
            return 1.0
        progress = (math.floor(epoch) if self.hold == "epoch" else epoch) / self.epochs
        return math.sin(progress * math.pi / 2) if self.shape == "sine" else progress

    def sizes(self, attack: Ascent, epoch: float, device: torch.device) -> tuple[Tensor, Tensor]:
        """The radius of the attack and the length of its steps at this time, each one number on the device."""
        final = torch.full((), attack.threat.radius, device=device)
        radius = torch.full((), attack.threat.radius * self.factor(epoch), device=device)
        return radius, attack.step_length(final if self.step == "final" else radius)


class TrainingAttack(Protocol):
    """What an objective needs of the attack on its batches: `Adversary`, or several of them (multi_norm.py)."""

    @property
    def mode(self) -> Mode:
        """The mode of the model while it is attacked."""

    def accelerate(self, runtime: Runtime) -> None:
        """Compile the search, and capture it as a CUDA graph, where the run does that."""

    def compile_blocks(self, runtime: Runtime) -> None:
        """In the middle of a long run: compile the repeated blocks of what is searched."""

    def radius(self, epoch: float) -> dict[str, float]:
        """`eps_share`, the fraction of the radius at this time, and `eps` where there is one radius."""

    def __call__(self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf) -> Tensor:
        """The attacked images."""


def training_attack(attack: Any) -> Ascent:
    """The attack as training uses it: it returns its last point unless `keep` says otherwise. Only ascents qualify."""
    if not isinstance(attack, Ascent):
        raise UserError(f"training needs an ascent attack such as fgsm or pgd, found {type(attack).__name__}")
    return dataclasses.replace(attack, keep=attack.keep or "last")


class Adversary:
    """Calls the attack on the model. `accelerate` makes it fast, by a copy of the model and a CUDA graph."""

    ball: Any = None  # a geometry that replaces the threat's

    def __init__(self, model: nn.Module, attack: Ascent, warmup: Warmup) -> None:
        self.model = model
        self.attack = training_attack(attack)
        self.warmup = warmup
        self._search: Callable[..., Tensor] = self._search_on(model, ascent_step)

    def _search_on(self, model: nn.Module, step: Callable[..., Any]) -> Callable[..., Tensor]:
        def search(x: Tensor, y: Tensor, keys: Tensor, eps: Tensor, length: Tensor) -> Tensor:
            options = {"keys": keys, "eps": eps, "length": length, "ball": self.ball, "step": step}
            return self.attack.search(model, x, y, **options).x_adv

        return search

    @property
    def mode(self) -> Mode:
        return self.attack.mode

    def accelerate(self, runtime: Runtime) -> None:
        if self.attack.mode == "train":  # batch norm writes its statistics, which a traced gradient may not do
            return
        if runtime.compile:
            self._search = self._search_on(self.model, runtime.compiled(ascent_step, fullgraph=True, dynamic=False))
            self._search = Captured(self._search) if runtime.captures else self._search
        elif runtime.captures:
            self._search = _FollowingSearch(self, runtime)

    def compile_blocks(self, runtime: Runtime) -> None:
        """Search on with compiled blocks, where `accelerate` has made the search a graph."""
        if isinstance(self._search, _FollowingSearch):
            self._search = _FollowingSearch(self, runtime, compiles=True)

    def radius(self, epoch: float) -> dict[str, float]:
        share = self.warmup.factor(epoch)
        return {"eps_share": share, "eps": share * self.attack.threat.radius}

    def sizes(self, keys: Tensor, epoch: float) -> tuple[Tensor, Tensor]:
        """Radius and step length for the images of these keys."""
        return self.warmup.sizes(self.attack, epoch, keys.device)

    def __call__(self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf) -> Tensor:
        if self.warmup.factor(epoch) == 0:
            return x.clone()
        keys = randomness.fresh_keys(len(x), x.device) if keys is None else keys
        with preserve_state(self.model, mode=self.attack.mode):
            return self._search(x, y, keys, *self.sizes(keys, epoch))


class _FollowingSearch:
    """The search as a CUDA graph without a compiler: on a fast copy that takes over the weights before every call.

    The copy is that of evaluations (attacks/pool/fast_copy.py), and is made when the first batch is there. A model
    that cannot be copied, or runs in fp32, is searched itself, with the faster layers.
    """

    def __init__(self, adversary: Adversary, runtime: Runtime, *, compiles: bool = False) -> None:
        self.adversary, self.runtime, self.compiles = adversary, runtime, compiles
        self._captured: Captured | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        if self._captured is None:
            self._captured = Captured(self._made(inputs[0][:8]))
        return self._captured(*inputs)

    def _made(self, probe: Tensor) -> Callable[..., Tensor]:
        model = self.adversary.model
        own = SearchModel(model, self.runtime.precision, self.runtime.precision)
        # separate statistics replace the model's at every pass: a copy of the layers would keep the wrong ones
        found = own if isinstance(model, SecondStatistics) else training_model(model, self.runtime, probe)
        if not _follows(found.model, model):
            found = own
        if self.compiles and isinstance(found.model, FastCopy):
            found.model.compile_blocks()
        search = self.adversary._search_on(found.model, ascent_step)
        layers = contextlib.nullcontext if isinstance(found.model, FastCopy) else FastLayers  # a copy has its own

        def follow(*inputs: Tensor) -> Tensor:
            if isinstance(found.model, FastCopy):
                found.model.follow(model)
            with self.runtime.arithmetic(found.arithmetic), layers():
                return search(*inputs)

        return follow


def _follows(copy: nn.Module, model: nn.Module) -> bool:
    """Whether a copy can take over the weights of the model, which modules of unusual kinds may prevent."""
    try:
        if isinstance(copy, FastCopy):
            copy.follow(model)
    except (KeyError, AttributeError, RuntimeError):
        return False
    return True
