"""A recipe: everything that defines a training run, read from YAML and `a.b=c` words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from hardtack.attacks import Ascent
from hardtack.config import Choice, build, merge, parse_words, read_yaml
from hardtack.data import AugmentConfig, DataConfig
from hardtack.errors import UserError
from hardtack.models import ModelConfig
from hardtack.objectives import StandardConfig
from hardtack.registry import attacks, objectives
from hardtack.runtime import Runtime
from hardtack.threats import Threat
from hardtack.training.optimise import OptimiserConfig, ScheduleConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """`batch_size` is the number of images per optimiser step over all processes and micro-steps."""

    epochs: int = 10
    batch_size: int = 128
    accumulate: int = 1
    clip: float | None = None
    ema: float | None = None
    log_every: int = 20
    checkpoint_every_s: float = 60.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.accumulate < 1:
            raise UserError("epochs, batch_size and accumulate must be at least 1")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise UserError(f"ema is a decay in [0, 1), found {self.ema}")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Measured on the validation split after every `every` epochs; the best checkpoint is chosen by it.

    The score is robust accuracy under `attack` when one is given, clean accuracy otherwise.
    """

    every: int = 1
    attack: Annotated[Any, Choice(attacks)] = None
    batch_size: int = 256
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    name: str = "run"
    output: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: Annotated[Any, Choice(objectives)] = StandardConfig()  # noqa: RUF009
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    runtime: Runtime = field(default_factory=Runtime)

    @property
    def folder(self) -> Path:
        return Path(self.output or f"runs/{self.name}").expanduser()


def read_recipe(path: str | Path | None = None, words: Iterable[str] = (), **values: Any) -> Recipe:
    """A recipe from a YAML file, words of the command line, and keyword sections."""
    settings = read_yaml(path) if path is not None else {}
    if path is not None and "name" not in settings:
        settings["name"] = Path(path).stem
    return build(Recipe, merge(merge(settings, values), parse_words(words)))


def validation_attack(recipe: Recipe) -> Ascent | None:
    """The attack that judges epochs: the recipe's own, or ten steps of PGD in the threat it trains against."""
    if recipe.validation.attack is not None:
        return recipe.validation.attack
    trained = getattr(recipe.objective, "attack", None)
    threat: Threat | None = getattr(trained, "threat", None)
    return Ascent(threat=threat, steps=10) if threat is not None else None
