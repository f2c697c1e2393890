"""What perturbation sequences come to: flip probabilities, their mean, and mFR.

mFR (Hendrycks and Dietterich 2019) divides a type's flip probability on ImageNet-P by AlexNet's, type by type, and
takes the mean of the quotients. CIFAR-P has no such table: its score is the plain mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardtack.data.perturbations import PERTURBATIONS
from hardtack.evaluation.sights import Sight
from hardtack.results import Result, bootstrap

FLIPS = "flip_probability"
TEN = PERTURBATIONS["imagenet"]
ALEXNET_FLIPS = dict(
    zip(TEN, (0.2365, 0.3006, 0.0930, 0.0594, 0.1193, 0.0489, 0.1101, 0.1310, 0.0705, 0.2353), strict=True)
)
UNCONFIRMED = {
    "level": "yellow",
    "code": "unconfirmed_constants",
    "message": "AlexNet's flip probabilities, which mFR divides by, are in no published code; they agree with the mFR "
    "of 58.0 % that the benchmark's authors state for ResNet-50",
}


def mean_flip_rate(flips: Mapping[str, float]) -> float:
    """The mean over the ten types of a model's flip probability in units of AlexNet's."""
    return float(np.mean([flips[name] / ALEXNET_FLIPS[name] for name in TEN]))


def sequence_results(
    sights: Sequence[Sight], columns: Mapping[str, np.ndarray], flags: Sequence[Any], common: Mapping[str, Any]
) -> list[Result]:
    """The flip probability of each type, then their mean and, with ImageNet-P's ten types, mFR."""
    flips = {sight.name: columns[f"flips@{sight.name}"] for sight in sights}
    moved = {sight.name: float(columns[f"distance@{sight.name}"].mean()) for sight in sights}
    shared = {**common, "flags": tuple(flags), "extra": {**common["extra"], "source": sights[0].source}}
    results = [
        _result(FLIPS, flips[sight.name], sight.name, sight.settings, moved[sight.name], shared) for sight in sights
    ]
    constants = sights[0].settings["constants"]
    how = {"types": list(flips), "constants": constants}
    mean = np.mean(list(flips.values()), axis=0)
    results.append(
        _result("mean_flip_probability", mean, _words(flips), how, float(np.mean(list(moved.values()))), shared)
    )
    if constants == "imagenet" and set(TEN) <= set(flips):
        scaled = np.mean([flips[name] / ALEXNET_FLIPS[name] for name in TEN], axis=0)
        results.append(
            _result(
                "mean_flip_rate", scaled, _words(TEN), how | {"types": list(TEN)}, None,
                {**shared, "flags": (*flags, UNCONFIRMED), "extra": {**shared["extra"], "units": ALEXNET_FLIPS}},
            )
        )  # fmt: skip
    return results


def _result(
    metric: str,
    per_image: np.ndarray,
    attack: str,
    settings: Mapping[str, Any],
    distance: float | None,
    shared: Mapping[str, Any],
) -> Result:
    low, high = bootstrap(per_image)
    extra = shared["extra"] if distance is None else {**shared["extra"], "top5_distance": distance}
    return Result(
        metric=metric, value=float(per_image.mean()), low=low, high=high, n=len(per_image), attack=attack,
        attack_settings=dict(settings), interval="bootstrap 95%", **{**shared, "extra": extra},
    )  # fmt: skip


def _words(types: Sequence[str] | Mapping[str, Any]) -> str:
    """`10 types`, or which ones where they are few."""
    return ", ".join(types) if len(types) <= 3 else f"{len(types)} types"


def flip_list(results: Sequence[Result]) -> list[str]:
    """A line for each type: how often the prediction flips, between how many frames, and the top-5 distance."""
    found = [result for result in results if result.metric == FLIPS]
    if not found:
        return []
    lines = [f"{'flip probability':<32} {'':7} {'95% interval':>16}  frames  top-5 distance"]
    for one in found:
        interval = f"[{one.low:.2%}, {one.high:.2%}]"
        frames = f"{one.attack_settings['frames']:>6}"
        name = str(one.attack).replace("_", " ")
        lines.append(f"{name:<32} {one.value:7.2%} {interval:>16}  {frames}  {one.extra['top5_distance']:14.3f}")
    return lines
