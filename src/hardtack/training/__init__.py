"""Turning objectives into weights."""

from hardtack.training.recipe import Recipe, TrainConfig, ValidationConfig, read_recipe, validation_attack
from hardtack.training.trainer import Trainer, Validate

__all__ = [
    "Recipe",
    "TrainConfig",
    "Trainer",
    "Validate",
    "ValidationConfig",
    "read_recipe",
    "validation_attack",
]
