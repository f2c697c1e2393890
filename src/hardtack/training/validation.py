"""The end of an epoch: validate the weights, keep the best and the last, warn of overfitting, stop early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.models import save_weights
from hardtack.objectives.contract import Objective
from hardtack.training.averaging import Average
from hardtack.training.checkpoint import Progress
from hardtack.training.mask_snapshots import MaskSnapshotWriter
from hardtack.training.overfitting import OVERFITS, first_overfit
from hardtack.training.recipe import Recipe
from hardtack.training.tracking import RunLog

Validate = Callable[[nn.Module], dict[str, float]]
"""Measures a model on held-out data; the value under "score" chooses the best checkpoint."""


class Validation:
    def __init__(
        self, recipe: Recipe, data: Dataset, progress: Progress, validate: Validate | None, folder: Path
    ) -> None:
        if recipe.train.patience is not None and validate is None:
            raise UserError("train.patience needs validation scores: set data.validation, for example to 0.1")
        self.recipe, self.classes, self.progress, self.validate = recipe, list(data.classes), progress, validate
        self.folder, self.snapshots = folder, MaskSnapshotWriter(recipe, folder)

    def is_due(self, epoch: int) -> bool:
        return (
            self.progress.asked_to_stop
            or epoch % self.recipe.validation.every == 0
            or epoch == self.recipe.train.epochs
        )

    def run(
        self, model: nn.Module, epoch: int, *, objective: Objective, average: Average | None, log: RunLog
    ) -> dict[str, float]:
        """Validate `model`, the weights that the run would export now; the scores, none without a validation split.

        `epoch` counts the epochs that have ended.
        """
        progress = self.progress
        scores = self.validate(model) if self.validate is not None else {}
        if scores:
            log.write("validation", step=progress.done, epoch=epoch, **scores)
            log.say(f"epoch {epoch}/{self.recipe.train.epochs}  " + _percentages(scores))
        progress.history.append(scores)
        if first_overfit(progress.history) == len(progress.history) - 1:
            log.say(OVERFITS)
            log.write("warning", step=progress.done, epoch=epoch, warning="catastrophic_overfitting")
        if not scores or progress.best is None or scores["score"] > progress.best:
            progress.best, progress.best_epoch = scores.get("score"), epoch
            self.export("best", model, epoch, scores, objective=objective, average=average)
        self.export("last", model, epoch, {}, objective=objective, average=average)
        if self.recipe.runtime.is_main:
            self.snapshots.write(objective, epoch)
        return scores

    def export(
        self, name: str, model: nn.Module, epoch: int, scores: dict[str, float],
        *, objective: Objective, average: Average | None,
    ) -> None:  # fmt: skip
        """Write the weights, and what the objective keeps beside them, as checkpoints/NAME.safetensors."""
        if not self.recipe.runtime.is_main:
            return
        facts: dict[str, Any] = {"recipe": plain(self.recipe), "classes": self.classes, "epoch": epoch}
        kind = average.kind if average is not None and average.begun else None
        facts |= {"validation": scores, "average": kind}
        if self.progress.extended_from:
            facts["extended_from"] = self.progress.extended_from
        checkpoints = self.folder / "checkpoints"
        save_weights(checkpoints / f"{name}.safetensors", model, metadata=facts)
        objective.export(checkpoints, name)

    def stop_early(self, epoch: int, log: RunLog) -> None:
        """End the run here if a callback or `train.patience` asks for it."""
        if self.progress.asked_to_stop and epoch < self.recipe.train.epochs:
            self.progress.stopped = True
            log.say("stops early, as a callback asked")
            return
        patience, best = self.recipe.train.patience, self.progress.best_epoch
        if patience is not None and epoch - best >= patience and epoch < self.recipe.train.epochs:
            self.progress.stopped = True
            log.say(f"stops early: no epoch since epoch {best} has a better validation score (train.patience)")


def _percentages(scores: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:.1%}" for name, value in scores.items() if name != "score")
