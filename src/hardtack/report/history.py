"""The training log of a run, prepared for the report: validated epochs, accuracies on training images, warnings."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from hardtack.results import Run

WARNINGS = {
    "catastrophic_overfitting": "overfits to its training attack: accuracy under PGD fell while accuracy under FGSM "
    "rose. The best checkpoint was saved before that; the last one is not robust",
}


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """Accuracies on the validation split, and on the training images of the epoch before the validation (`seen_…`)."""

    epoch: float
    score: float
    clean: float | None
    robust: float | None
    seen_clean: float | None
    seen_robust: float | None


def epochs_of(run: Run) -> list[Epoch]:
    """The validated epochs in order. Lines without an epoch or without any accuracy are skipped."""
    training = {key: _seen(run, key) for key in ("accuracy", "robust_accuracy")}
    epochs = []
    for line in lines_of(run, "validation"):
        epoch, clean, robust = (_number(line, key) for key in ("epoch", "clean_accuracy", "robust_accuracy"))
        scores = [value for value in (_number(line, "score"), robust, clean) if value is not None]
        if epoch is not None and scores:
            epochs.append(
                Epoch(
                    epoch=epoch,
                    score=scores[0],
                    clean=clean,
                    robust=robust,
                    seen_clean=training["accuracy"].get(math.ceil(epoch)),
                    seen_robust=training["robust_accuracy"].get(math.ceil(epoch)),
                )
            )
    return sorted(epochs, key=lambda entry: entry.epoch)


def said_warnings(run: Run) -> list[tuple[dict[str, Any], str]]:
    """The lines of kind "warning", each with its text for the reader."""
    lines = [line for line in lines_of(run, "warning") if isinstance(line.get("warning"), str)]
    return [(line, WARNINGS.get(line["warning"], line["warning"].replace("_", " "))) for line in lines]


def lines_of(run: Run, kind: str) -> list[dict[str, Any]]:
    return [line for line in run.metrics if line.get("kind") == kind]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _seen(run: Run, field: str) -> dict[int, float]:
    """Epoch → the mean over its steps. A line represents the steps since the previous line."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    before = 0.0
    for line in lines_of(run, "train"):
        step, epoch, value = (_number(line, key) for key in ("step", "epoch", field))
        if step is not None and epoch is not None and value is not None:
            total = sums[math.ceil(epoch)]
            total[0] += (step - before) * value
            total[1] += step - before
        before = before if step is None else step
    return {epoch: total / steps for epoch, (total, steps) in sums.items() if steps > 0}


def _number(line: dict[str, Any], key: str) -> float | None:
    return float(line[key]) if is_number(line.get(key)) else None
