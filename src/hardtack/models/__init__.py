"""Pixels to logits: a name, a recipe, a weights file or the user's own module becomes a `Classifier`."""

from hardtack.models import zoo  # noqa: F401  # registers our own architectures
from hardtack.models.blocks import Block, find_blocks
from hardtack.models.branches import Branch
from hardtack.models.build import ModelConfig, load_model, parameter_count, rebuild
from hardtack.models.classifier import Classifier, Normalize, normalisation, wrap
from hardtack.models.files import find_weights, read_metadata
from hardtack.models.occluder import Occluder, find_occluder, load_occluder, save_occluder
from hardtack.models.taps import Taps, tap
from hardtack.models.weights import Loaded, load_weights, save_weights

__all__ = [
    "Block",
    "Branch",
    "Classifier",
    "Loaded",
    "ModelConfig",
    "Normalize",
    "Occluder",
    "Taps",
    "find_blocks",
    "find_occluder",
    "find_weights",
    "load_model",
    "load_occluder",
    "load_weights",
    "normalisation",
    "parameter_count",
    "read_metadata",
    "rebuild",
    "save_occluder",
    "save_weights",
    "tap",
    "wrap",
]
