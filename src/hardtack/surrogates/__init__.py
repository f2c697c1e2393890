"""Surrogates: differentiable copies of a model's answers, made to attack through them (`hardtack adapt`)."""

from hardtack.surrogates.distil import Distillation, DistillationRound, distil
from hardtack.surrogates.job import SurrogateAttack, adapt
from hardtack.surrogates.settings import AdaptConfig, DistillationConfig

__all__ = [
    "AdaptConfig",
    "Distillation",
    "DistillationConfig",
    "DistillationRound",
    "SurrogateAttack",
    "adapt",
    "distil",
]
