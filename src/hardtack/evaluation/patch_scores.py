"""What masks come to: accuracy over all of them, under the worst of them, and how sure the model stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardtack.evaluation.masks import Masked
from hardtack.results import Result, bootstrap, wilson


def patch_results(
    sights: Sequence[Masked], columns: Mapping[str, np.ndarray], flags: Sequence[Any], common: Mapping[str, Any]
) -> list[Result]:
    """For each kind of damage `patch_accuracy`, `worst_mask_accuracy` and `patch_confidence`."""
    return [result for sight in sights for result in _of_kind(sight, columns, flags, common)]


def _of_kind(
    sight: Masked, columns: Mapping[str, np.ndarray], flags: Sequence[Any], common: Mapping[str, Any]
) -> list[Result]:
    right = np.stack([columns[f"right@{sight.name}/{number}"] for number in range(sight.masks.count)], axis=1)
    sure, before = (columns[name].astype(float) for name in (f"confidence@{sight.name}", "clean_confidence"))
    extra = {**common["extra"], "source": sight.source, "clean_confidence": float(before.mean())}
    shared = {
        **common, "flags": tuple(flags), "n": len(right), "attack": sight.words, "attack_settings": sight.settings,
        "threat": sight.threat, "extra": extra,
    }  # fmt: skip
    worst = right.min(axis=1)
    low, high = wilson(int(worst.sum()), len(worst))
    return [
        _mean("patch_accuracy", right.mean(axis=1), {**shared, "extra": {**extra, **distributions(right)}}),
        Result(metric="worst_mask_accuracy", value=float(worst.mean()), low=low, high=high, **shared),
        _mean("patch_confidence", sure, shared),
    ]


def _mean(metric: str, per_image: np.ndarray, shared: Mapping[str, Any]) -> Result:
    low, high = bootstrap(per_image)
    value = float(per_image.mean())
    return Result(metric=metric, value=value, low=low, high=high, interval="bootstrap 95%", **shared)


def distributions(right: np.ndarray) -> dict[str, list[Any]]:
    """Of verdicts images×masks: `distribution`, the accuracy under each mask number; `image_distribution`, how many
    images survive none of their masks, up to a tenth of them, above that up to two tenths, … up to all: 11 counts.
    """
    masks = right.shape[1]
    tenths = -(-10 * right.sum(axis=1) // masks)  # in whole numbers, so that 3 of 10 is no more than three tenths
    return {
        "distribution": right.mean(axis=0).tolist(),
        "image_distribution": np.bincount(tenths, minlength=11).tolist(),
    }
