"""The conclusion over all images: accuracies with intervals, amplitudes and frequencies, for every pair of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from hardtack.analysis.analysis import Arrays, Conclusion, Score, mean_score
from hardtack.analysis.other_models import Resized
from hardtack.base.config import plain

ITSELF = "itself"
SIGNS = ("", ", reversed")  # x_adv − x, as in the text of the thesis, and x − x_adv, as in its code


def conclude(
    arrays: Arrays, settings: Any, *, makers: Sequence[str], judges: Mapping[str, nn.Module], classes: int
) -> Conclusion:
    threat = str(settings.threat)
    top = [k for k in settings.top if k < classes]

    def score(metric: str, per_image: np.ndarray, column: str) -> Score:
        return mean_score(metric, per_image, column=column, threat=threat)

    scores = [
        mean_score("unmoved_accuracy", arrays["rank_clean"][:, place] == 0, column=classifier)
        for place, classifier in enumerate(judges)
    ]
    for m, maker in enumerate(makers):
        for j, classifier in enumerate(judges):
            scores.append(score("moved_accuracy", arrays["rank_moved"][:, m, j] == 0, f"{maker} → {classifier}"))
    for k in top:
        for m, maker in enumerate(makers):
            for j, classifier in enumerate(judges):
                for sign, word in enumerate(SIGNS):
                    right = arrays["rank_alone"][:, m, j, sign] < k
                    scores.append(score(f"alone_top{k}_accuracy", right, f"{maker} → {classifier}{word}"))
    for m, maker in enumerate(makers):
        if "amplitude_at_bound" in arrays:
            scores.append(score("perturbation_at_bound", arrays["amplitude_at_bound"][:, m].mean(axis=-1), maker))
        scores.append(score("perturbation_levels", 255 * arrays["amplitude_mean"][:, m].mean(axis=-1), maker))
        scores.append(score("perturbation_frequency", arrays["frequency"][:, m], maker))
    scores.append(mean_score("image_frequency", arrays["frequency_images"]))
    facts = {
        "makers": list(makers), "judges": list(judges), "weights": list(settings.fingerprints()), "classes": classes,
        "top": top, "threat": threat,
        "attack": {key: value for key, value in plain(settings.attack).items() if key != "threat"},
    }  # fmt: skip
    return Conclusion(scores=scores, facts=facts, notes=_notes(arrays, settings, makers, judges, classes))


def _notes(
    arrays: Arrays, settings: Any, makers: Sequence[str], judges: Mapping[str, nn.Module], classes: int
) -> list[str]:
    notes = [
        f"{name} takes {model.size}×{model.size} images: its inputs were resized"
        for name, model in judges.items()
        if isinstance(model, Resized)
    ]
    for other in settings.others:
        if other.is_untrained:
            notes.append(f"the weights of {other.label} are random: its results say nothing about a trained model")
    for maker, blind in zip(makers, arrays["zero_gradient"].mean(axis=0), strict=True):
        if blind > 0:
            notes.append(
                f"{maker}: the gradient is zero on {blind:.0%} of the images: their perturbations are meaningless"
            )
    useless = [k for k in settings.top if k >= classes]
    if useless:
        left_out = " and ".join(f"top-{k}" for k in useless)
        notes.append(f"with {classes} classes {left_out} is always right, and is left out")
    return notes
