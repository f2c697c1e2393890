"""A recipe: everything that defines a training run, read from YAML and `a.b=c` words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from hardtack.attacks import Ascent
from hardtack.base.config import SEVERAL, Choice, build, merge, parse_words, read_yaml
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.base.registry import attacks, objectives, trackers
from hardtack.base.runtime import Runtime
from hardtack.base.trust import is_in_run, stored_settings
from hardtack.data import AugmentConfig, DataConfig
from hardtack.models import ModelConfig
from hardtack.models.from_file import named_place
from hardtack.models.parts import Word
from hardtack.objectives import StandardConfig
from hardtack.training.optimise import OptimiserConfig
from hardtack.training.penalty import PenaltyConfig
from hardtack.training.schedule import ScheduleConfig
from hardtack.training.sharpness import SharpnessConfig

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Section `train:` of a recipe: how long, and in what steps.

    epochs               passes over the training images
    batch_size           images in one optimiser step, over all processes and micro-steps
    accumulate           micro-steps that an optimiser step is divided into: less memory, the same result
    clip                 largest norm of the gradient over all parameters; null: the gradient is not clipped
    ema                  decay of an average of the weights over steps, which is evaluated and saved; null: no such
                         average
    swa_from             epoch from whose end on the weights are averaged over epochs; null: no such average
    patience             epochs without a better validation score after which the run ends; null: it never ends early
    freeze               parts that are not trained: words such as head, conv or qkv, or patterns of names
                         (models/parts.py)
    checkpoint_blocks    keep only the input of each block and compute it again in the backward pass: less memory, more
                         time
    log_every            optimiser steps between two lines of the log
    checkpoint_every_s   seconds between two saved states, from which a killed run resumes
    track                services that receive the metrics as well: tensorboard, wandb, mlflow (extra `track`)
    """

    epochs: Count = 10
    batch_size: Count = 128
    accumulate: Count = 1
    clip: Annotated[float, Field(gt=0)] | None = None
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    swa_from: Count | None = None
    patience: Count | None = None
    freeze: Annotated[tuple[Word, ...], SEVERAL] = ()
    checkpoint_blocks: bool = False
    log_every: Count = 20
    checkpoint_every_s: float = 60.0
    track: Annotated[tuple[str, ...], SEVERAL] = ()

    def __post_init__(self) -> None:
        for name in self.track:
            if name not in trackers:
                hint = did_you_mean(name, trackers.names()) or f"; known: {', '.join(trackers.names())}"
                raise UserError(f"there is no tracker '{name}'{hint}")
        if self.ema is not None and self.swa_from is not None:
            raise UserError("ema and swa_from are two kinds of average, and a run exports one: set only one of them")
        if self.swa_from is not None and self.swa_from > self.epochs:
            raise UserError(f"swa_from {self.swa_from} is after the last of {self.epochs} epochs")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Section `validation:` of a recipe. The best checkpoint is the one with the highest score.

    every        epochs between two measurements of the validation split
    attack       the attack of robust accuracy; null: PGD of ten steps in the threat that is trained against, if there
                 is one
    batch_size   images in one pass of the model
    limit        only the first n images of the validation split; null: all of them

    The score is robust accuracy under `attack`, or clean accuracy where nothing is attacked.
    """

    every: Count = 1
    attack: Annotated[Any, Choice(attacks)] = None
    batch_size: Count = 256
    limit: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that defines a training run.

    name         what the run is called
    output       the run folder; null: runs/NAME
    data         where images come from (hardtack list settings data)
    augment      how training images are changed (hardtack list settings augment)
    model        the network (hardtack list settings model)
    objective    what training minimises: a name (hardtack list objectives) and its own settings
    optimiser    how weights follow gradients (hardtack list settings optimiser)
    schedule     the learning rate over the run (hardtack list settings schedule)
    sharpness    training for flat minima (hardtack list settings sharpness)
    penalty      a penalty on weights (hardtack list settings penalty)
    train        how long, and in what steps (hardtack list settings train)
    validation   how the best checkpoint is chosen (hardtack list settings validation)
    runtime      where and how precisely everything is computed (hardtack list settings runtime)
    """

    name: str = "run"
    output: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: Annotated[Any, Choice(objectives)] = StandardConfig()  # noqa: RUF009
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    sharpness: SharpnessConfig = field(default_factory=SharpnessConfig)
    penalty: PenaltyConfig = field(default_factory=PenaltyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    runtime: Runtime = field(default_factory=Runtime)

    @property
    def folder(self) -> Path:
        return local_path(self.output or f"runs/{self.name}")


def read_recipe(path: str | Path | None = None, words: Iterable[str] = (), **values: Any) -> Recipe:
    """A recipe from a YAML file, words of the command line, and keyword sections."""
    in_run = path is not None and is_in_run(path)
    settings = read_yaml(path, alone=in_run) if path is not None else {}
    if path is not None and "name" not in settings:
        settings["name"] = Path(path).stem
    _rename_older(settings)
    if path is not None and in_run:  # the configuration of a run, which may be a stranger's
        typed = merge(values, parse_words(words))
        return build(Recipe, stored_settings(settings, typed, folder=Path(path).parent, code=named_place))
    return build(Recipe, merge(merge(settings, values), parse_words(words)))


def _rename_older(settings: dict[str, Any]) -> None:
    """`train.tensorboard: true` of version 0.1.0 is `train.track: [tensorboard]`."""
    section = settings.get("train")
    if isinstance(section, dict) and section.pop("tensorboard", False) is True:
        section.setdefault("track", ["tensorboard"])


def validation_attack(recipe: Recipe) -> Ascent | None:
    """The attack of validation: the recipe's own, or ten steps of PGD in the (first) threat that is trained against."""
    if recipe.validation.attack is not None:
        return recipe.validation.attack
    threats = recipe.objective.threats()
    return Ascent(threat=threats[0], steps=10) if threats else None
