"""The sections of a recipe as keywords with types, for type checkers and editors; `Recipe` says what they do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict

from hardtack.base.runtime import Runtime
from hardtack.data import AugmentConfig
from hardtack.objectives.contract import ObjectiveConfig
from hardtack.training.optimise import OptimiserConfig
from hardtack.training.penalty import PenaltyConfig
from hardtack.training.recipe import TrainConfig, ValidationConfig
from hardtack.training.schedule import ScheduleConfig
from hardtack.training.sharpness import SharpnessConfig

Section = Mapping[str, Any]
ObjectiveName = Literal["adversarial", "alp", "free", "gaussian", "mart", "rspc", "standard", "trades"] | str


class RecipeSettings(TypedDict, total=False):
    """The sections of a recipe: `ht.train("digits/trades", train={"epochs": 5})`."""

    name: str
    output: str | Path | None
    model: Any
    data: Any
    augment: Section | AugmentConfig
    objective: ObjectiveName | Section | ObjectiveConfig
    optimiser: str | Section | OptimiserConfig
    schedule: str | Section | ScheduleConfig
    sharpness: Section | SharpnessConfig
    penalty: Section | PenaltyConfig
    train: Section | TrainConfig
    validation: Section | ValidationConfig
    runtime: Section | Runtime
