"""Suite `patches`: accuracy and confidence with a few damaged patches, over all masks and under the worst of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from hardtack.base.registry import suites
from hardtack.evaluation.masks import MaskedView, patch_views
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, SuiteContext
from hardtack.results import Result, bootstrap, wilson


@suites.register(
    "patches",
    help="Accuracy and confidence with a few patches occluded, noisy, dropped or attacked, under many random masks.",
)
class PatchesSuite(Suite):
    """For each kind of damage `patch_accuracy`, `worst_mask_accuracy`, `mask_deviation` and `patch_confidence`."""

    takes = ("patches", "confidence")

    def views(self, config: EvaluationConfig, context: SuiteContext) -> Sequence[MaskedView]:
        return patch_views(
            config.patches, context.model, context.shape, context.seed, confidence=config.confidence
        )  # fmt: skip

    def results(self, measurement: Measurement) -> list[Result]:
        views = cast(Sequence[MaskedView], measurement.views)
        return [result for view in views for result in _results_of_kind(view, measurement)]


def _results_of_kind(view: MaskedView, measurement: Measurement) -> list[Result]:
    columns, common = measurement.columns, measurement.common
    right = np.stack([columns[f"right@{view.name}/{number}"] for number in range(view.masks.count)], axis=1)
    before = columns["clean_confidence"].astype(float)
    extra = {**common["extra"], "source": view.source, "clean_confidence": float(before.mean())}
    shared = {
        **common, "flags": tuple(measurement.flags), "n": len(right), "attack": view.words,
        "attack_settings": view.settings, "threat": view.threat, "extra": extra,
    }  # fmt: skip
    worst = right.min(axis=1)
    low, high = wilson(int(worst.sum()), len(worst))
    results = [
        _mean("patch_accuracy", right.mean(axis=1), {**shared, "extra": {**extra, **distributions(right)}}),
        Result(metric="worst_mask_accuracy", value=float(worst.mean()), low=low, high=high, **shared),
        _mean("mask_deviation", right.std(axis=1), shared),
    ]
    if view.confidence:
        results.append(_mean("patch_confidence", columns[f"confidence@{view.name}"].astype(float), shared))
    return results


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
