"""The suites that attack nothing: what each looks at, and how its numbers are made of what it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardtack.data.corruptions import constants_for
from hardtack.evaluation.scores import corruption_results
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.sights import Sight
from hardtack.evaluation.views import corruption_views, official_views
from hardtack.results import Result

Score = Callable[[Sequence[Any], Mapping[str, np.ndarray], Sequence[Any], Mapping[str, Any]], list[Result]]
"""Results from sights, verdict columns, flags and what all results have in common."""


@dataclass(frozen=True)
class Suite:
    """`make(config, image_size, seed)` says what is looked at; its documentation, what the suite measures."""

    make: Callable[[EvaluationConfig, int, int], Sequence[Sight]]
    score: Score


def _corruptions(config: EvaluationConfig, image_size: int, seed: int) -> Sequence[Sight]:
    """Accuracy under common corruptions, regenerated, or from official files with files=FOLDER."""
    severities = tuple(sorted(set(config.severities)))
    if config.files is not None:
        return official_views(config.files, config.types, severities)
    constants = config.constants or constants_for(image_size)
    return corruption_views(config.types, severities, constants, seed=seed, frost=config.frost)


SURVEYS = {
    "corruptions": Suite(_corruptions, corruption_results),
}


def make_sights(config: EvaluationConfig, image_size: int, seed: int = 0) -> Sequence[Sight]:
    """What an evaluation that attacks nothing looks at; nothing for one that does."""
    return SURVEYS[config.suite].make(config, image_size, seed) if config.suite in SURVEYS else []
