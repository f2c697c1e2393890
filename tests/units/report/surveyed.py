"""Results of surveys and protocols by hand, in the words their suites write, for the charts to draw."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from hardtack.results import Result, append_results, wilson

TYPES = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
SEQUENCES = (
    "gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "brightness", "translate", "rotate", "tilt",
    "scale",
)  # fmt: skip
UNCONFIRMED = {"level": "yellow", "code": "unconfirmed_constants", "message": "AlexNet's values stand in no code"}


def measured(folder: Path, metric: str, value: float, *, n: int = 360, half: float | None = 0.02, **more) -> Result:
    about = {
        "suite": "clean", "data": "digits/test", "data_description": "scikit-learn digits", "evaluation": "e-1",
        "run": folder.name, "model": "vit_digits", "checkpoint": "best", "precision": "fp32",
        "weights_sha256": hashlib.sha256(folder.name.encode()).hexdigest(), "created": "2026-03-04T10:00:00+00:00",
    }  # fmt: skip
    bounds = {} if half is None else {"low": max(0.0, value - half), "high": min(1.0, value + half)}
    return Result(metric=metric, value=value, n=n, **bounds, **{**about, **more})


def corrupted(folder: Path, *, level: float, source: str = "regenerated", types=TYPES, severities=(1, 2, 3, 4, 5)):
    """Accuracies that fall with the severity, from `level` on; every type at its own speed."""
    made = {"suite": "corruptions", "evaluation": f"corruptions-{source}", "extra": {"source": source}}
    results = [measured(folder, "clean_accuracy", level, suite="corruptions", evaluation=made["evaluation"])]
    for place, name in enumerate(types):
        for severity in severities:
            value = round(level - severity * (0.02 + 0.008 * (place % 7)), 4)
            settings = {"type": name, "severity": severity, "constants": "cifar"}
            attack = {"attack": f"{name}/{severity}", "attack_settings": settings}
            results.append(measured(folder, "corrupted_accuracy", value, **attack, **made))
    mean = float(np.mean([result.value for result in results[1:]]))
    settings = {"types": list(types), "severities": list(severities), "constants": "cifar"}
    sums = {"attack": "15 common types × 5 severities", "attack_settings": settings}
    append_results(folder, [*results, measured(folder, "mean_corrupted_accuracy", mean, **sums, **made)])


def flipping(folder: Path, *, level: float) -> None:
    made = {"suite": "perturbations", "evaluation": "perturbations-1", "extra": {"source": "regenerated"}}
    values = {name: level * (0.5 + 0.1 * place) for place, name in enumerate(SEQUENCES)}
    results = [
        measured(folder, "flip_probability", value, half=0.004, attack=name, attack_settings={"type": name}, **made)
        for name, value in values.items()
    ]
    words = {"attack": "10 types", **made}
    results.append(
        measured(folder, "mean_flip_probability", float(np.mean(list(values.values()))), half=0.003, **words)
    )
    results.append(measured(folder, "mean_flip_rate", 9 * level, flags=(UNCONFIRMED,), **words))
    append_results(folder, results)


def occluded(folder: Path, *, level: float, kinds=("occlude", "noise", "drop", "pgd"), masks: int = 100) -> None:
    made = {"suite": "patches", "evaluation": "patches-1"}
    results = [measured(folder, "clean_accuracy", level, **made)]
    for place, kind in enumerate(kinds):
        noise = np.random.default_rng(place)
        mean = level - 0.05 * (place + 1)
        distribution = np.clip(mean + 0.012 * noise.standard_normal(masks), 0, 1).round(4).tolist()
        settings = {"kind": kind, "share": 0.1, "patches": 7, "patch_size": 4, "masks": masks, "choose": "random"}
        about = {"attack": f"{kind} 7 of 64 patches of 4×4, {masks} masks", "attack_settings": settings, **made}
        extra = {"source": "regenerated", "distribution": distribution, "clean_confidence": level - 0.03}
        for metric, value in (
            ("patch_accuracy", float(np.mean(distribution))), ("worst_mask_accuracy", mean - 0.2),
            ("patch_confidence", mean - 0.08),
        ):  # fmt: skip
            results.append(measured(folder, metric, value, extra=extra, **about))
    append_results(folder, results)


def attacked(folder: Path, *, standing: int, wrong: int, n: int = 360, classes=tuple("0123456789")) -> None:
    """AutoAttack over two threats, with its reasons and its classes."""
    fallen = n - standing - wrong
    broken = {"apgd_ce linf:8/255": fallen - fallen // 3 - 2, "apgd_t linf:8/255": fallen // 3, "square l2:0.5": 2}
    made = {"suite": "autoattack", "evaluation": "autoattack-1"}
    share = np.linspace(0.6, 1.4, len(classes))
    total = np.full(len(classes), n // len(classes))

    def by_class(value):
        right = np.minimum(total, np.round(value * share * total)).astype(int)
        return {"classes": list(classes), "n": total.tolist(), "right": right.tolist()}

    clean, robust = (n - wrong) / n, standing / n
    common = {"broken_by": broken}
    results = [
        measured(folder, "clean_accuracy", clean, extra={**common, "per_class": by_class(clean)}, **made),
        measured(
            folder, "robust_accuracy", robust + 0.01, threat="linf:8/255", attack="autoattack standard",
            extra={**common, "per_class": by_class(robust)}, **made,
        ),
        measured(
            folder, "worst_case_accuracy", robust, threat="linf:8/255+l2:0.5", attack="autoattack standard",
            extra=common, **made,
        ),
    ]  # fmt: skip
    append_results(folder, results)


def calibrated(folder: Path, *, gap: float, n: int = 360) -> None:
    bins, left = [], n
    for place in range(5, 15):
        count = left if place == 14 else left // 6
        left -= count
        middle = (place + 0.5) / 15
        bins.append([place / 15, (place + 1) / 15, count, middle, max(0.0, middle - gap)])
    made = {"evaluation": f"clean-{n}", "interval": "bootstrap 95%", "extra": {"bins": bins}}
    append_results(folder, [measured(folder, "expected_calibration_error", gap, n=n, half=0.01, **made)])


def followed(folder: Path, columns: dict[str, float], *, protocol: str = "architectures/cifar 1", **more) -> None:
    """Columns of a protocol; their places are those of the paper, whatever is missing."""
    places = ["Clean", "FGSM", "PGD-linf", "PGD-l2", "AutoAttack"]
    results = []
    evaluation = f"protocol-{sorted([protocol, *columns, *map(str, more.items())])}"
    for column, value in columns.items():
        low, high = wilson(round(360 * value), 360)
        metric = "clean_accuracy" if column == "Clean" else "robust_accuracy"
        extra = {"column": column, "place": places.index(column)}
        made = {"suite": "protocol", "protocol": protocol, "evaluation": evaluation, "extra": extra}
        results.append(measured(folder, metric, value, low=low, high=high, half=None, **{**made, **more}))
    append_results(folder, results)
