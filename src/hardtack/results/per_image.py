"""What a result is the mean of: one number per image, from the verdicts it was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hardtack.results.record import Result
from hardtack.results.runs import parse_threat

Columns = Mapping[str, np.ndarray]


def per_image(result: Result, columns: Columns) -> np.ndarray | None:
    """The vector (n,) whose mean is the result's value; None for one that is no mean over images."""
    if result.suite == "protocol":
        return columns.get(f"value@{result.extra.get('column')}")
    if result.suite == "analysis":
        return columns.get(f"value@{result.metric}/{result.extra.get('column', '')}")
    make = _VECTORS.get(result.metric)
    try:
        return None if make is None else np.asarray(make(result, columns), dtype=float)
    except (KeyError, ValueError):  # verdicts of another version
        return None


def area_under(columns: Columns) -> np.ndarray:
    """Of every image the share of radii, from 0 to the largest, at which it stands (trapezoids between those tried)."""
    robust = [name for name in columns if name.startswith("robust@")]
    at = {0.0: columns["clean_correct"]} | {parse_threat(name[7:])[1]: columns[name] for name in robust}
    radii = sorted(at)
    heights = np.stack([at[radius] for radius in radii]).astype(float)
    return ((heights[1:] + heights[:-1]) / 2 * np.diff(radii)[:, None]).sum(axis=0) / radii[-1]


def _mean_of(columns: Columns, start: str) -> np.ndarray:
    found = [columns[name] for name in columns if name.startswith(start)]
    return np.mean(np.stack(found).astype(float), axis=0)


def _masks(result: Result, columns: Columns) -> np.ndarray:
    kind = result.attack_settings["kind"]
    return np.stack([columns[name] for name in columns if name.startswith(f"right@{kind}/")]).astype(float)


def _in_units(result: Result, columns: Columns) -> np.ndarray:
    """Errors in units of another model's, type by type; `clean` among the units: what is added to the clean error."""
    units = dict(result.extra["units"])
    other = units.pop("clean", None)
    own = 0.0 if other is None else 1 - columns["clean_correct"].astype(float)
    errors = {name: 1 - _mean_of(columns, f"correct@{name}/") for name in units}
    return np.mean([(errors[name] - own) / (units[name] - (other or 0.0)) for name in units], axis=0)


def _flips_in_units(result: Result, columns: Columns) -> np.ndarray:
    units = result.extra["units"]
    return np.mean([columns[f"flips@{name}"] / unit for name, unit in units.items()], axis=0)


_VECTORS: dict[str, Callable[[Result, Columns], np.ndarray]] = {
    "clean_accuracy": lambda _, columns: columns["clean_correct"],
    "top5_accuracy": lambda _, columns: columns["clean_rank"] < 5,
    "robust_accuracy": lambda result, columns: columns[f"robust@{result.threat}"],
    "worst_case_accuracy": lambda _, columns: columns["robust"],
    "robustness_area": lambda _, columns: area_under(columns),
    "corrupted_accuracy": lambda result, columns: columns[f"correct@{result.attack}"],
    "mean_corrupted_accuracy": lambda _, columns: _mean_of(columns, "correct@"),
    "mean_corruption_error": _in_units,
    "relative_corruption_error": _in_units,
    "mean_flip_rate": _flips_in_units,
    "flip_probability": lambda result, columns: columns[f"flips@{result.attack}"],
    "mean_flip_probability": lambda _, columns: _mean_of(columns, "flips@"),
    "patch_accuracy": lambda result, columns: _masks(result, columns).mean(axis=0),
    "worst_mask_accuracy": lambda result, columns: _masks(result, columns).min(axis=0),
    "patch_confidence": lambda result, columns: columns[f"confidence@{result.attack_settings['kind']}"],
}
