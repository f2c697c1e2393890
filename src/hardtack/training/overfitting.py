"""Catastrophic overfitting (Wong et al. 2020): the model learns its one-step attack instead of resisting it.

Within an epoch or two accuracy under PGD falls, often to nothing, while accuracy under FGSM goes on rising: the
network bends its loss so that one step lands nowhere. It shows only where both are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.attacks import Ascent

FEW_STEPS = 2  # of the training attack: with more it has not been seen at the usual radii
FALL = 0.05  # of accuracy; ordinary ups and downs move both accuracies the same way

OVERFITS = (
    "overfits to its training attack: accuracy under PGD falls while accuracy under FGSM rises. The best checkpoint is "
    "kept; train with more attack steps or a smaller radius"
)


def first_overfit(history: Sequence[Mapping[str, float]]) -> int | None:
    """The first of the judgements that shows it; None where none does.

    The rule: `robust_accuracy` lies more than 5 points below the best so far, and `fgsm_accuracy` above what it was
    then. Judgements without both are passed over.
    """
    best: Mapping[str, float] | None = None
    for number, scores in enumerate(history):
        if not {"robust_accuracy", "fgsm_accuracy"} <= set(scores):
            continue
        if best is None or scores["robust_accuracy"] > best["robust_accuracy"]:
            best = scores
        fell = best["robust_accuracy"] - scores["robust_accuracy"] > FALL
        if fell and scores["fgsm_accuracy"] > best["fgsm_accuracy"]:
            return number
    return None


def one_step_judge(objective: Any, judge: Any) -> Ascent | None:
    """FGSM in the threat that epochs are judged by, where training takes few steps and the judge takes more."""
    threat, steps = getattr(judge, "threat", None), getattr(judge, "steps", FEW_STEPS + 1)
    if threat is None or steps <= FEW_STEPS or not trains_on_few_steps(objective):
        return None
    return Ascent(threat=threat, steps=1, relative_step=1.0, start="clean")


def trains_on_few_steps(objective: Any) -> bool:
    if hasattr(objective, "replays"):  # free adversarial training: one step for each update
        return True
    given = getattr(objective, "attacks", ()) or (getattr(objective, "attack", None),)
    return any(getattr(attack, "steps", FEW_STEPS + 1) <= FEW_STEPS for attack in given)
