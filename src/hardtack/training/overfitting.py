"""Catastrophic overfitting (Wong et al. 2020): the model becomes robust to its one-step training attack only.

Within an epoch or two accuracy under PGD falls, often to zero, while accuracy under FGSM keeps rising: the loss becomes
so curved that a single step does not increase it. Both accuracies must be measured to see this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.attacks import Ascent
from hardtack.objectives.contract import ObjectiveConfig

FEW_STEPS = 2  # of the training attack: with more steps it has not been observed at the usual radii
FALL = 0.05  # of accuracy; ordinary fluctuations move both accuracies in the same direction

OVERFITS = (
    "overfits to its training attack: accuracy under PGD falls while accuracy under FGSM rises. The best checkpoint is "
    "kept; train with more attack steps or a smaller radius"
)


def first_overfit(history: Sequence[Mapping[str, float]]) -> int | None:
    """The index of the first validation that shows it; None where none does.

    The rule: `robust_accuracy` is more than 5 points below the best so far, and `fgsm_accuracy` is above its value at
    that best. Validations without both accuracies are skipped.
    """
    best: Mapping[str, float] | None = None
    for number, scores in enumerate(history):
        if not {"robust_accuracy", "fgsm_accuracy"} <= set(scores):
            continue
        if best is None or scores["robust_accuracy"] > best["robust_accuracy"]:
            best = scores
        falls = best["robust_accuracy"] - scores["robust_accuracy"] > FALL
        if falls and scores["fgsm_accuracy"] > best["fgsm_accuracy"]:
            return number
    return None


def one_step_attack(objective: ObjectiveConfig, attack: Any) -> Ascent | None:
    """FGSM in the threat of the validation attack, where training takes few steps and validation takes more."""
    steps = objective.attack_steps()
    if attack is None or steps is None or steps > FEW_STEPS:
        return None
    if isinstance(attack, Ascent) and attack.steps <= FEW_STEPS:
        return None
    return Ascent(threat=attack.threat, steps=1, relative_step=1.0, start="clean")
