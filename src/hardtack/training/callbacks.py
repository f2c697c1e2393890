"""What a caller of `ht.train` may do while it trains: functions called after steps, epochs and validations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from hardtack.base.errors import UserError
from hardtack.training.checkpoint import Progress


@dataclass(frozen=True)
class TrainingEvent:
    """A moment of a training.

    step      updates so far, of `total_steps`
    epoch     epochs so far, with fractions
    metrics   after a step what the objective reported, as tensors that have not been waited for (`float(value)` waits);
              after an epoch their means since the last line of the log; after a validation its scores
    model     the model that is trained, in training mode; after a validation the one that was measured
    folder    the run folder
    """

    step: int
    total_steps: int
    epoch: float
    metrics: Mapping[str, Any]
    model: nn.Module
    folder: Path
    _progress: Progress

    def stop(self) -> None:
        """End the run after this epoch, as `train.patience` does: it is validated and saved, and stays ended."""
        self._progress.asked_to_stop = True


Callback = Callable[[TrainingEvent], object]


@dataclass(frozen=True)
class Callbacks:
    """None: nothing is called. An error in a callback ends the run, which a repeated call continues."""

    on_step: Callback | None = None
    on_epoch: Callback | None = None
    on_validation: Callback | None = None

    def __post_init__(self) -> None:
        for name, function in vars(self).items():
            if function is not None and not callable(function):
                raise UserError(f"{name} must be a function of a TrainingEvent, found {type(function).__name__}")
