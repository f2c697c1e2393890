"""The suites that attack nothing: what each looks at, and how its numbers are made of what it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from hardtack.base.errors import UserError
from hardtack.data.corruptions import constants_for
from hardtack.evaluation.flip_scores import sequence_results
from hardtack.evaluation.masks import patch_sights
from hardtack.evaluation.patch_scores import patch_results
from hardtack.evaluation.scores import corruption_results
from hardtack.evaluation.sequences import official_sequences, sequence_sights
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.sights import Sight
from hardtack.evaluation.views import corruption_views, official_views
from hardtack.results import Result

Score = Callable[[Sequence[Any], Mapping[str, np.ndarray], Sequence[Any], Mapping[str, Any]], list[Result]]
"""Results from sights, verdict columns, flags and what all results have in common."""


@dataclass(frozen=True)
class Scene:
    """What is known before anything is looked at: the model, the shape C×H×W of its images, and the seed."""

    model: nn.Module
    shape: Sequence[int]
    seed: int

    @property
    def largest_side(self) -> int:
        return max(self.shape[1:])


@dataclass(frozen=True)
class Suite:
    """`make(config, scene)` says what is looked at; its documentation, what the suite measures."""

    make: Callable[[EvaluationConfig, Scene], Sequence[Sight]]
    score: Score


def _corruptions(config: EvaluationConfig, scene: Scene) -> Sequence[Sight]:
    """Accuracy under common corruptions, regenerated, or from official files with files=FOLDER."""
    severities = tuple(sorted(set(config.severities)))
    if config.files is not None:
        _shown_as_they_are(config)
        return official_views(config.files, config.types, severities)
    constants = config.constants or constants_for(scene.largest_side)
    return corruption_views(
        config.types, severities, constants, seed=scene.seed, frost=config.frost, jpeg=config.jpeg
    )  # fmt: skip


def _shown_as_they_are(config: EvaluationConfig) -> None:
    for name in ("jpeg", "frost", "constants"):
        if getattr(config, name) is not None:
            raise UserError(f"{name} is for regenerated images; official files are shown as they are")


def _patches(config: EvaluationConfig, scene: Scene) -> Sequence[Sight]:
    """Accuracy and confidence with a few patches occluded, noisy, dropped or attacked, under many random masks."""
    return patch_sights(config.patches, scene.model, scene.shape, scene.seed)


def _perturbations(config: EvaluationConfig, scene: Scene) -> Sequence[Sight]:
    """How often predictions flip while images change step by step, regenerated, or from official files=FOLDER."""
    if config.files is not None:
        _shown_as_they_are(config)
        return official_sequences(config.files, config.types)
    constants = config.constants or constants_for(scene.largest_side)
    return sequence_sights(config.types, constants, seed=scene.seed)


SURVEYS = {
    "corruptions": Suite(_corruptions, corruption_results),
    "perturbations": Suite(_perturbations, sequence_results),
    "patches": Suite(_patches, patch_results),
}


def make_sights(config: EvaluationConfig, scene: Scene) -> Sequence[Sight]:
    """What an evaluation that attacks nothing looks at; nothing for one that does."""
    return SURVEYS[config.suite].make(config, scene) if config.suite in SURVEYS else []
