"""Adaptive attacks: any attack by gradients, with the gradient that fits the defence (Tramèr et al. 2020).

    attack.smooth=0.02              mean of the model's gradient over noise of this deviation, in pixel units
    attack.nes=0.02                 gradient estimated from values alone
    attack.bpda=mine.py:surrogate   gradient of a substitute: a function of the model that returns it, or a module
    attack.transfer=RUN             gradient of the model of another run, for example one made by `hardtack adapt`
    attack.eot=20                   mean of so many passes of a random model

These settings belong to no attack in particular: `AdaptiveAttack` calls the attack with a gradient source
(gradients.py) in the model's place. Searches then run on the model itself in fp32, and only the model's own answer
decides what counts as broken.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks.contract import Attack, as_attack
from hardtack.attacks.gradients import averaged, estimated, gradient_at, smoothed, through
from hardtack.attacks.outcome import AttackOutcome
from hardtack.attacks.pool.search import Cost, NewItems, PlannedAttempt, State
from hardtack.attacks.preserve_state import preserve_state
from hardtack.attacks.transfer import Source
from hardtack.base.annotations import Shown, WrittenAsText
from hardtack.base.config import Number, build, check, choose, plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models.user_code import UserFunction
from hardtack.threats import Threat

Count = Annotated[int, Field(ge=1)]
KEYS = ("smooth", "nes", "bpda", "transfer", "eot")


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """Gradients averaged over noise.

    sigma     standard deviation of the noise in pixel units
    samples   passes that each backward pass becomes
    """

    sigma: Annotated[Number, Field(gt=0, allow_inf_nan=False)]
    samples: Count = 16

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class Estimation:
    """Gradients estimated from values.

    sigma     distance of the points, in pixel units
    samples   points that each estimate takes, an even number
    grid      tiles a side on which a direction is constant; 0: every pixel has its own
    """

    sigma: Annotated[Number, Field(gt=0, allow_inf_nan=False)]
    samples: Count = 64
    grid: Annotated[int, Field(ge=0)] = 8

    def __post_init__(self) -> None:
        check(self)
        if self.samples % 2:
            raise UserError(f"samples must be even, because images come in pairs, found {self.samples}")


def _section(cls: type, key: str, given: Any) -> Any:
    """`0.02`, `8/255`, or a mapping of all settings."""
    if given is None or isinstance(given, cls):
        return given
    return build(cls, given if isinstance(given, Mapping) else {"sigma": given}, path=f"attack.{key}")


@dataclass(frozen=True)
class Surrogate(WrittenAsText):
    """What `bpda` names: `FILE.py:NAME`, in Python also a module, or a function from the model to its substitute."""

    given: Any

    @classmethod
    def parse(cls, given: Any) -> Surrogate:
        if isinstance(given, Surrogate):
            return given
        if isinstance(given, str):
            return cls(UserFunction.parse(given, "attack.bpda"))
        if not callable(given):
            raise UserError(
                f"'attack.bpda' takes FILE.py:NAME, or in Python a module or a function of the model, found {given!r}"
            )
        return cls(given)

    def __str__(self) -> str:
        if isinstance(self.given, UserFunction):
            return str(self.given)
        return type(self.given).__name__ if isinstance(self.given, nn.Module) else getattr(self.given, "__name__", "?")

    @property
    def digest(self) -> str:
        """Of its code or its weights, so that results found with others do not pass for these."""
        if isinstance(self.given, UserFunction):
            return self.given.digest
        return Source(self.given).fingerprint() if isinstance(self.given, nn.Module) else ""

    def for_model(self, model: nn.Module, device: torch.device) -> Callable[[Tensor], Tensor]:
        """The substitute of a model. A module that is not part of the model is copied, and frozen in eval mode."""
        if isinstance(self.given, UserFunction):
            target = self.given.load()
            target = target if isinstance(target, nn.Module) else self.given.call(model)
        else:
            target = self.given if isinstance(self.given, nn.Module) else self.given(model)
        if not callable(target):
            raise UserError(
                f"{self} must return a function from images to logits, for example a torch.nn.Module, "
                f"found {type(target).__name__}"
            )
        if isinstance(target, nn.Module) and not _is_part(target, model):
            return copy.deepcopy(target).to(device).eval().requires_grad_(False)
        return target


def _is_part(module: nn.Module, model: nn.Module) -> bool:
    """Whether a module shares parameters with the model, which is frozen and in eval mode while it is attacked."""
    own = {id(parameter) for parameter in model.parameters()}
    return any(id(parameter) in own for parameter in module.parameters())


@dataclass(frozen=True, kw_only=True)
class GradientConfig:
    """Where an attack's gradient comes from; without any setting, from the model itself.

    smooth     average the gradient over Gaussian noise of this deviation, in pixel units, or {sigma, samples}; null:
               the gradient at the point itself
    nes        estimate the gradient from values alone, at points this far away, or {sigma, samples, grid}; null: by
               backpropagation
    bpda       FILE.py:NAME, a function from the model to the substitute whose gradient is taken (BPDA); null: the model
               itself
    transfer   a run folder or weights file whose gradient is taken, such as the surrogate of hardtack adapt; null: the
               model itself
    eot        passes of a random model whose gradients are averaged

    `smooth` together with `bpda` or `transfer` smooths the gradient of the substitute.
    """

    smooth: Annotated[Any, Shown("number, mapping or null", "> 0")] = None
    nes: Annotated[Any, Shown("number, mapping or null", "> 0")] = None
    bpda: Annotated[Any, Shown("FILE.py:NAME or null")] = None
    transfer: Annotated[Any, Shown("run folder, weights file or null")] = None
    eot: Count = 1

    def __post_init__(self) -> None:
        check(self)
        object.__setattr__(self, "smooth", _section(Smoothing, "smooth", self.smooth))
        object.__setattr__(self, "nes", _section(Estimation, "nes", self.nes))
        object.__setattr__(self, "bpda", None if self.bpda is None else Surrogate.parse(self.bpda))
        object.__setattr__(self, "transfer", None if self.transfer is None else Source.parse(self.transfer))
        if self.bpda is not None and self.transfer is not None:
            raise UserError("attack.bpda and attack.transfer both replace the model's gradient; give one of them")
        for other in ("smooth", "bpda", "transfer"):
            if self.nes is not None and getattr(self, other) is not None:
                raise UserError(f"attack.nes estimates the gradient from the model's values; leave out attack.{other}")

    @property
    def replaces(self) -> list[str]:
        """The settings that replace the gradient, by name; `eot` averages values as well and is not one of them."""
        return [key for key in KEYS if key != "eot" and getattr(self, key) is not None]

    def described(self) -> dict[str, Any]:
        """The settings in use as plain values, with digests of code and weights, for the record and the id."""
        entries: dict[str, Any] = {}
        for key in ("smooth", "nes"):
            if (noise := getattr(self, key)) is not None:
                entries[key] = plain(noise)
        if self.bpda is not None:
            entries |= {"bpda": str(self.bpda), "bpda_sha256": self.bpda.digest}
        if self.transfer is not None:
            entries |= {"transfer": str(self.transfer), "transfer_sha256": self.transfer.fingerprint()}
        return entries | ({"eot": self.eot} if self.eot > 1 else {})

    def words(self) -> str:
        """`smooth=0.02 eot=20`, for titles."""
        shown = {"smooth": self.smooth and f"{self.smooth.sigma:g}", "nes": self.nes and f"{self.nes.sigma:g}"}
        shown |= {"bpda": self.bpda, "transfer": self.transfer, "eot": self.eot if self.eot > 1 else None}
        return " ".join(f"{key}={value}" for key, value in shown.items() if value is not None)

    def source(self, model: nn.Module, device: torch.device, seed: int) -> nn.Module:
        """The gradient source that stands in for a model. The last one is kept, since every pass asks for it."""
        last: Any = vars(self).get("_last")
        if last is None or last[0] is not model or last[1:3] != (device, seed):
            last = (model, device, seed, self._source(model, device, seed))
            object.__setattr__(self, "_last", last)
        made: nn.Module = last[3]
        return made

    def _source(self, model: nn.Module, device: torch.device, seed: int) -> nn.Module:
        base = averaged(model, self.eot) if self.eot > 1 else model
        surrogate: Any = None
        if self.bpda is not None:
            surrogate = self.bpda.for_model(model, device)
        elif self.transfer is not None:
            surrogate = copy.deepcopy(self.transfer.model).to(device).eval().requires_grad_(False)
        if surrogate is not None and self.smooth is not None:
            surrogate = smoothed(surrogate, self.smooth.sigma, self.smooth.samples, seed)
        if surrogate is not None:
            return through(base, surrogate)
        if self.smooth is not None:
            return smoothed(base, self.smooth.sigma, self.smooth.samples, seed)
        if self.nes is None:
            return base
        return estimated(base, self.nes.sigma, self.nes.samples, seed, grid=self.nes.grid or None)

    def passes(self, cost: Cost) -> Cost:
        """Passes through the model and its substitute, where an attack by itself would make these."""
        smooth = self.smooth.samples if self.smooth is not None else 1
        forwards, backwards = cost.forwards * self.eot, cost.backwards
        if self.nes is not None:
            return Cost(forwards + backwards * self.nes.samples * self.eot, 0)
        if self.bpda is not None or self.transfer is not None:
            return Cost(forwards + backwards * smooth, backwards * smooth)
        if self.smooth is not None or self.eot > 1:
            return Cost(forwards + backwards * smooth * self.eot, backwards * smooth * self.eot)
        return cost


@dataclass(frozen=True, kw_only=True)
class AdaptiveAttack(Attack):
    """`attack` with the gradient of another source. Everything else is the attack's."""

    attack: Attack
    gradients: GradientConfig
    threat: Threat | None = None  # type: ignore[assignment]  # another threat than the attack's

    def __post_init__(self) -> None:
        if self.threat is not None and self.threat != self.attack.threat:
            object.__setattr__(self, "attack", dataclasses.replace(self.attack, threat=self.threat))  # type: ignore[type-var]
        for name in ("threat", "seed", "mode", "eot", "loss", "steps", "restarts", "target", "targets", "reach"):
            object.__setattr__(self, name, getattr(self.attack, name))
        object.__setattr__(self, "check_interval", self.attack.check_interval)

    has_gradient_source = True

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        verdict: bool = True,
    ) -> AttackOutcome:
        return self.attack.search(self._source(model, x), x, y, keys=keys, target=target, verdict=verdict)

    def _source(self, model: nn.Module, like: Tensor) -> nn.Module:
        return self.gradients.source(model, like.device, self.attack.seed)

    # ------------------------------------------------------------ what it may do, and how it is described

    def settle(self, model: nn.Module, like: Tensor) -> tuple[Self, str]:
        """A substitute that does not fit the model is refused here, by one pass over a few images."""
        attack, note = self.attack.settle(model, like)
        if self.gradients.bpda is not None or self.gradients.transfer is not None:
            with preserve_state(model):
                image = like[:2].detach().clone()
                gradient_at(self._source(model, like), image, torch.zeros_like(model(image)))
        return dataclasses.replace(self, attack=attack), note

    @property
    def limits(self) -> str:
        return self.attack.limits

    def allows(self, x_adv: Tensor, x: Tensor, model: nn.Module | None = None) -> Tensor:
        return self.attack.allows(x_adv, x, model)

    @property
    def whole_batches(self) -> bool:
        return self.attack.whole_batches

    @property
    def name(self) -> str:
        return self.attack.name

    def settings(self) -> dict[str, Any]:
        return self.attack.settings()

    def described(self) -> dict[str, Any]:
        return self.attack.described() | {"gradients": self.gradients.described()}

    def shortened(self, steps: int) -> AdaptiveAttack | None:
        short = self.attack.shortened(steps)
        return None if short is None else dataclasses.replace(self, attack=short)

    # ------------------------------------------------------------ what the pool needs

    @property
    def pooled(self) -> bool:
        return self.attack.pooled

    def attempts(self, classes: int) -> list[PlannedAttempt]:
        return self.attack.attempts(classes)

    def length(self, steps: int) -> int:
        return self.attack.length(steps)

    def cost(self, classes: int) -> Cost:
        return self.gradients.passes(self.attack.cost(classes))

    def last_cost(self, classes: int) -> Cost:
        return self.gradients.passes(self.attack.last_cost(classes))

    def begin(self, items: NewItems) -> State:
        return self.attack.begin(items)

    def advance(self, model: nn.Module, state: State) -> State:
        return self.attack.advance(self._source(model, state["x"]), state)

    def finish(self, model: nn.Module, state: State) -> State:
        return self.attack.finish(self._source(model, state["x"]), state)


def split_settings(settings: Mapping[str, Any], attack: Any) -> tuple[dict[str, Any], GradientConfig]:
    """The settings of an attack of this class without those of its gradient, and the latter.

    Settings that the class has itself (`eot` of APGD and PGD) keep their meaning.
    """
    own = {item.name for item in dataclasses.fields(attack)} if dataclasses.is_dataclass(attack) else set()
    mine = {key: value for key, value in settings.items() if key in KEYS and key not in own}
    rest = {key: value for key, value in settings.items() if key not in mine}
    return rest, build(GradientConfig, mine, path="attack")


def choose_attack(settings: Mapping[str, Any], *, path: str = "") -> Attack:
    """An attack by its `name` and settings, among them those of its gradient."""
    rest, gradients = split_settings(settings, attacks.get(settings["name"]).make)
    return adapted(as_attack(choose(attacks, rest, path=path)), gradients)


def adapted(attack: Attack, gradients: GradientConfig, *, strict: bool = True) -> Attack:
    """The attack with these gradients; itself where nothing changes.

    An attack that uses no gradient of the logits is refused or, without `strict`, only averages values (`eot`).
    """
    if gradients.replaces and not attack.uses_logit_gradient:
        if strict:
            raise UserError(
                f"attack.{gradients.replaces[0]} replaces the gradient of the model's logits, which {attack.name} does "
                "not use; take an attack by gradients, such as apgd or pgd"
            )
        gradients = GradientConfig(eot=gradients.eot)
    if gradients.eot > 1 and "eot" in attack.settings():
        attack = dataclasses.replace(attack, eot=gradients.eot)  # type: ignore[type-var]
        gradients = dataclasses.replace(gradients, eot=1)
    return attack if gradients == GradientConfig() else AdaptiveAttack(attack=attack, gradients=gradients)
