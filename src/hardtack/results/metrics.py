"""The metrics: one entry each, with its title, how it is printed and ordered, and what it is the mean of.

    @metrics.register("blurred_accuracy", title="Accuracy on blurred images", percent=True)
    def blurred_accuracy(result, columns):
        return columns["correct@blur"]

The function returns one number per image, from the verdict columns, whose mean is the result's value: `compare` tests
differences with it. It returns None for a metric that is not a mean over images. A file of the user's registers metrics
in the same way (`--import FILE.py`). A metric that is not registered is described by the ending of its name.

title             on the page and in tables (default: the name with spaces)
percent           a fraction that is printed as a percentage
lower_is_better   how tables are sorted
order             the place of its tables on the page; without one they follow after those that have one
charted           shown by a chart of its own and not in tables
per_view          one of many numbers of an evaluation, one per view; the mean over views is another metric
derived           says again what other lines and the verdicts say: an evaluation of an older version may lack it
one_minus         the metric that it is one minus, so that a comparison shows one of the two
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardtack.base.registry import metrics
from hardtack.results.record import Result
from hardtack.results.threat_text import parse_threat

Columns = Mapping[str, np.ndarray]
PerImage = Callable[[Result, Columns], Any]

_PERCENT = ("accuracy", "rate", "error", "probability", "confidence", "success", "area")
_LOWER = ("error", "loss", "_rate", "flip_probability")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What is known about a metric (see the module's documentation)."""

    name: str
    title: str
    percent: bool
    lower_is_better: bool
    order: int | None = None
    charted: bool = False
    per_view: bool = False
    derived: bool = False
    one_minus: str = ""
    per_image: PerImage | None = None


def find_metric(name: str) -> Metric:
    """The metric of this name; one that is not registered is described by the ending of its name."""
    entry = metrics.get(name) if name in metrics else None
    fields: dict[str, Any] = {
        "title": name.replace("_", " ").capitalize(),
        "percent": name.endswith(_PERCENT),
        "lower_is_better": name.endswith(_LOWER),
        **(entry.presets if entry is not None else {}),
    }
    return Metric(name=name, per_image=entry.make if entry is not None else None, **fields)


def is_share(metric: str) -> bool:
    """Whether the metric is a fraction that reads best as a percentage."""
    return find_metric(metric).percent


def lower_is_better(metric: str) -> bool:
    """Whether a smaller value of the metric is better."""
    return find_metric(metric).lower_is_better


def per_image(result: Result, columns: Columns) -> np.ndarray | None:
    """The vector (n,) whose mean is the result's value; None for a result that is no mean over images."""
    if result.suite == "protocol":
        return columns.get(f"value@{result.extra.get('column')}")
    if result.suite == "analysis":
        return columns.get(f"value@{result.metric}/{result.extra.get('column', '')}")
    make = find_metric(result.metric).per_image
    try:
        vector = None if make is None else make(result, columns)
    except (KeyError, ValueError):  # verdicts of another version
        return None
    return None if vector is None else np.asarray(vector, dtype=float)


# ---------------------------------------------------------------- clean images


@metrics.register("clean_accuracy", title="Clean accuracy")
def clean_accuracy(result: Result, columns: Columns) -> Any:
    """The share of unchanged images that are classified correctly."""
    return columns["clean_correct"]


@metrics.register("top5_accuracy", title="Top-5 accuracy")
def top5_accuracy(result: Result, columns: Columns) -> Any:
    """The share of unchanged images whose true class is among the five likeliest."""
    return columns["clean_rank"] < 5


@metrics.register("expected_calibration_error", charted=True)
def expected_calibration_error(result: Result, columns: Columns) -> Any:
    """The gap between certainty and accuracy, over fifteen bins of certainty."""
    return None


# ---------------------------------------------------------------- attacks


@metrics.register("worst_case_accuracy", title="Worst case over all threats", order=0)
def worst_case_accuracy(result: Result, columns: Columns) -> Any:
    """The share of images that are classified correctly under every threat."""
    return columns["robust"]


@metrics.register("robust_accuracy", title="Robust accuracy", order=1)
def robust_accuracy(result: Result, columns: Columns) -> Any:
    """The share of images that no attack within the threat broke."""
    return columns[f"robust@{result.threat}"]


@metrics.register("robustness_area")
def robustness_area(result: Result, columns: Columns) -> Any:
    """Robust accuracy averaged over all radii from 0 to the largest."""
    return area_under(columns)


def area_under(columns: Columns) -> np.ndarray:
    """For every image the share of radii, from 0 to the largest, at which it is correct (trapezoidal rule)."""
    robust = [name for name in columns if name.startswith("robust@")]
    at = {0.0: columns["clean_correct"]} | {parse_threat(name[7:])[1]: columns[name] for name in robust}
    radii = sorted(at)
    heights = np.stack([at[radius] for radius in radii]).astype(float)
    return ((heights[1:] + heights[:-1]) / 2 * np.diff(radii)[:, None]).sum(axis=0) / radii[-1]


# ---------------------------------------------------------------- randomised smoothing


@metrics.register("certified_accuracy", title="Certified accuracy", order=2)
def certified_accuracy(result: Result, columns: Columns) -> Any:
    """The share of images that the smoothed model provably classifies correctly within a radius."""
    return certified_radii(columns) > parse_threat(str(result.threat))[1]


@metrics.register("average_certified_radius", title="Average certified radius", charted=True)
def average_certified_radius(result: Result, columns: Columns) -> Any:
    """The certified radius averaged over images."""
    return certified_radii(columns)


@metrics.register("smoothed_accuracy", title="Accuracy of the smoothed model", charted=True)
def smoothed_accuracy(result: Result, columns: Columns) -> Any:
    """The share of images that the smoothed model classifies correctly; an abstention is not correct."""
    return columns["vote@smoothing"] == columns["label"]


def certified_radii(columns: Columns) -> np.ndarray:
    """The radius of every image within which the smoothed model is right; 0 where it is wrong or abstains."""
    right = ~columns["abstained@smoothing"] & (columns["prediction@smoothing"] == columns["label"])
    return np.where(right, columns["radius@smoothing"], 0.0)


# ---------------------------------------------------------------- corruptions


@metrics.register("corrupted_accuracy", title="Accuracy under corruptions", charted=True, per_view=True)
def corrupted_accuracy(result: Result, columns: Columns) -> Any:
    """Accuracy under one type of corruption at one severity."""
    return columns[f"correct@{result.attack}"]


@metrics.register("mean_corrupted_accuracy", title="Mean accuracy under corruptions", order=3)
def mean_corrupted_accuracy(result: Result, columns: Columns) -> Any:
    """Accuracy averaged over types and severities."""
    return _mean_of(columns, "correct@")


@metrics.register(
    "mean_corrupted_error",
    title="Mean error under corruptions",
    charted=True,
    derived=True,
    one_minus="mean_corrupted_accuracy",
)
def mean_corrupted_error(result: Result, columns: Columns) -> Any:
    """The error averaged over types and severities, in its own units: what is called mCE on CIFAR-C."""
    return np.mean([1 - _mean_of(columns, f"correct@{name}/") for name in result.attack_settings["types"]], axis=0)


@metrics.register("mean_corruption_error", title="mCE", order=4)
def mean_corruption_error(result: Result, columns: Columns) -> Any:
    """Errors relative to AlexNet's, averaged over types."""
    return _in_units(result, columns)


@metrics.register("relative_corruption_error", title="Relative mCE", order=5)
def relative_corruption_error(result: Result, columns: Columns) -> Any:
    """The increase of the error under corruptions, relative to AlexNet's increase."""
    return _in_units(result, columns)


def _mean_of(columns: Columns, start: str) -> np.ndarray:
    values = [columns[name] for name in columns if name.startswith(start)]
    return np.mean(np.stack(values).astype(float), axis=0)


def _in_units(result: Result, columns: Columns) -> np.ndarray:
    """Errors relative to those of another model, type by type; with `clean` in `units`, of the increase."""
    units = dict(result.extra["units"])
    other = units.pop("clean", None)
    own = 0.0 if other is None else 1 - columns["clean_correct"].astype(float)
    errors = {name: 1 - _mean_of(columns, f"correct@{name}/") for name in units}
    return np.mean([(errors[name] - own) / (units[name] - (other or 0.0)) for name in units], axis=0)


# ---------------------------------------------------------------- perturbation sequences


@metrics.register("flip_probability", charted=True, per_view=True)
def flip_probability(result: Result, columns: Columns) -> Any:
    """How often the prediction changes between frames of one type of perturbation."""
    return columns[f"flips@{result.attack}"]


@metrics.register("mean_flip_probability", order=6)
def mean_flip_probability(result: Result, columns: Columns) -> Any:
    """Flip probability averaged over types."""
    return _mean_of(columns, "flips@")


@metrics.register("mean_flip_rate", title="mFR", order=7)
def mean_flip_rate(result: Result, columns: Columns) -> Any:
    """Flip probabilities relative to AlexNet's, averaged over types."""
    units = result.extra["units"]
    return np.mean([columns[f"flips@{name}"] / unit for name, unit in units.items()], axis=0)


# ---------------------------------------------------------------- damaged patches


@metrics.register("patch_accuracy", title="Accuracy with damaged patches", charted=True)
def patch_accuracy(result: Result, columns: Columns) -> Any:
    """Accuracy averaged over masks."""
    return _masks(result, columns).mean(axis=0)


@metrics.register("worst_mask_accuracy", title="Right under every mask", charted=True)
def worst_mask_accuracy(result: Result, columns: Columns) -> Any:
    """The share of images that are classified correctly under every mask."""
    return _masks(result, columns).min(axis=0)


@metrics.register(
    "mask_deviation",
    title="Standard deviation over masks",
    percent=True,
    lower_is_better=True,
    charted=True,
    derived=True,
)
def mask_deviation(result: Result, columns: Columns) -> Any:
    """How much it depends on the mask whether an image is right: the standard deviation over its masks."""
    return _masks(result, columns).std(axis=0)


@metrics.register("patch_confidence", title="Confidence with damaged patches", charted=True)
def patch_confidence(result: Result, columns: Columns) -> Any:
    """The probability of the true class, averaged over masks."""
    return columns[f"confidence@{result.attack_settings['kind']}"]


def _masks(result: Result, columns: Columns) -> np.ndarray:
    kind = result.attack_settings["kind"]
    return np.stack([columns[name] for name in columns if name.startswith(f"right@{kind}/")]).astype(float)
