"""What a forward pass reads or changes outside of tensors. A recorded graph would repeat it as it was while recording.

Two examples: an objective of the user's that counts its steps in an attribute, and a model that draws from Python's
own random numbers. Neither can be a CUDA graph. What hides in closures and globals is not seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from hardtack.objectives.contract import Objective

State = tuple[Any, ...]
_PLAIN = (bool, int, float, str, type(None))


def whole_state(objective: Objective) -> State:
    """Of the model, of the user's objective and of the random generators that are not torch's."""
    numpy_state = np.random.get_state()  # noqa: NPY002  # the global one, which others may draw from
    drawn = random.getstate(), numpy_state[1].tobytes(), numpy_state[2]  # type: ignore[index]
    return *drawn, _attributes(objective.model.named_modules()), own_state(objective)


def own_state(objective: Objective) -> State:
    """Of an objective that is not hardtack's, without its model: cheap enough for every step.

    Ours are known to take from their tensors all that changes.
    """
    if type(objective).__module__.startswith("hardtack."):
        return ()
    inside = {id(module) for module in objective.model.modules()}
    return _attributes((name, module) for name, module in objective.named_modules() if id(module) not in inside)


def _attributes(modules: Iterable[tuple[str, nn.Module]]) -> State:
    return tuple(
        (name, key, value)
        for name, module in modules
        for key, value in vars(module).items()
        if isinstance(value, _PLAIN) and key != "training"
    )
