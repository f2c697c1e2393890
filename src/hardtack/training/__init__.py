"""Turning objectives into weights."""

from hardtack.training.recipe import Recipe, TrainConfig, ValidationConfig, read_recipe, validation_attack
from hardtack.training.trainer import Trainer
from hardtack.training.validation import Validate

__all__ = [
    "Recipe",
    "TrainConfig",
    "Trainer",
    "Validate",
    "ValidationConfig",
    "read_recipe",
    "validation_attack",
]
