"""Suite `corruptions`: accuracy under common corruptions, regenerated or from official files.

mCE (Hendrycks and Dietterich 2019) divides a type's mean error by AlexNet's, type by type, and takes the mean of the
quotients; "without noise" leaves the three noises out. Relative mCE does the same with what corruption adds to the
error on clean images. CIFAR-C has no such table: its score is the plain mean accuracy, or the plain mean error.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.data import Dataset
from hardtack.data.corruptions import COMMON, NOISE, Constants, constants_for, corrupt, frost_source
from hardtack.data.corruptions.choose import chosen_types
from hardtack.data.corruptions.jpeg import compress
from hardtack.data.official import OfficialC, open_official
from hardtack.data.original import Original, StoredImages, enlarged_from, stored_at
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, SuiteContext
from hardtack.evaluation.views import ImageView, View
from hardtack.results import Result, bootstrap, wilson
from hardtack.results.calibration import calibration_error


@suites.register(
    "corruptions", help="Accuracy under common corruptions, regenerated, or from official files with files=FOLDER."
)
class CorruptionsSuite(Suite):
    """Accuracy under every type at every severity, their mean and, with ImageNet's constants, mCE.

    Paper: Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions and
        Perturbations (arXiv:1903.12261)
    """

    takes = ("types", "severities", "constants", "files", "frost", "jpeg", "confidence")

    def views(self, config: EvaluationConfig, context: SuiteContext) -> Sequence[View]:
        views = self._views(config, context)
        return views if config.confidence else [dataclasses.replace(view, confidence=False) for view in views]

    def _views(self, config: EvaluationConfig, context: SuiteContext) -> list[ImageView]:
        severities = tuple(sorted(set(config.severities)))
        if config.files is not None:
            refuse_settings_of_regenerated(config)
            return official_views(config.files, config.types, severities, original=context.original)
        stored = enlarged_from(context.original)
        constants = config.constants or constants_for(max(stored.shape) if stored else context.largest_side)
        return corruption_views(
            config.types, severities, constants, seed=context.seed, frost=config.frost, jpeg=config.jpeg, stored=stored
        )  # fmt: skip

    def results(self, measurement: Measurement) -> list[Result]:
        return corruption_results(measurement)

    @classmethod
    def text_table(cls, results: Sequence[Result]) -> list[str]:
        return corruption_grid(results)


def refuse_settings_of_regenerated(config: EvaluationConfig) -> None:
    """Official files are shown as they are: settings that make images do not go with them."""
    for name in ("jpeg", "frost", "constants"):
        if getattr(config, name) is not None:
            raise UserError(f"{name} is for regenerated images; official files are shown as they are")


def corruption_views(
    types: tuple[str, ...],
    severities: tuple[int, ...],
    constants: Constants,
    *,
    seed: int,
    frost: str | None,
    jpeg: int | None = None,
    stored: StoredImages | None = None,
) -> list[ImageView]:
    """Regenerated corruptions: every type at every severity. `jpeg`: stored at that quality, as ImageNet-C's were.

    `stored`: these images are corrupted, and resized afterwards, in place of the images of the batch.
    """
    folder = None if frost is None else Path(frost).expanduser()
    overlays = frost_source(folder)
    views = []
    for type_ in chosen_types(types):
        for severity in severities:
            how = {"type": type_, "severity": severity, "constants": constants, "seed": seed}
            how |= {"overlays": overlays} if type_ == "frost" else {}
            show = functools.partial(_shown, how=how, frost=folder, jpeg=jpeg, stored=stored)
            how = how | ({"jpeg": jpeg} if jpeg is not None else {}) | (stored.settings if stored else {})
            views.append(ImageView(name=f"{type_}/{severity}", show=show, source="regenerated", settings=how))
    return views


def _shown(
    x: Tensor, index: Tensor, how: dict[str, Any], frost: Path | None, jpeg: int | None, stored: StoredImages | None
) -> Tensor:
    x = x if stored is None else stored.fetch(index)
    corrupted = corrupt(
        x, index, how["type"], how["severity"], constants=how["constants"], seed=how["seed"], frost=frost
    )  # fmt: skip
    corrupted = corrupted if jpeg is None else compress(corrupted, jpeg)
    return corrupted if stored is None else stored.resize(corrupted)


def official_views(
    path: str, types: tuple[str, ...], severities: tuple[int, ...], *, original: Original | None = None
) -> list[ImageView]:
    """The images in official files, by their place: image 7 of the data is image 7 of every file.

    Files of the size that the data is stored at are resized as the data is (`original`).
    """
    files = open_official(path)
    if not isinstance(files, OfficialC):
        raise UserError(f"{path} holds {files.description}; suite=corruptions takes CIFAR-C's or ImageNet-C's files")
    wanted = chosen_types(types)
    missing = [name for name in wanted if name not in files.types]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; name those it has: types=[{','.join(files.types)}]")
    resized = stored_at(original, files.image_shape())
    how = {"files": files.kind, **_how_made(files), **(resized.settings if resized else {})}
    views = []
    for type_ in wanted:
        for severity in severities:
            stored = _FileImages(files, type_, severity, resized)
            views.append(
                ImageView(
                    name=f"{type_}/{severity}", show=stored.images, labels=stored.labels, source=files.source,
                    files=files, settings={"type": type_, "severity": severity, **how},
                )
            )  # fmt: skip
    return views


_OF_MARKER = ("constants", "seed", "frost", "corrupted_at", "resized")


def _how_made(files: OfficialC) -> dict[str, Any]:
    """Whose constants, and of a regenerated set also the rest that its marker says."""
    settings = files.made
    described: dict[str, Any] = {"constants": "imagenet" if files.kind == "imagenet_c" else "cifar"}
    described |= {key: value for key, value in settings.items() if key in _OF_MARKER}
    return described | (
        {"jpeg": settings["jpeg"]} if settings.get("layout") == "folder" and settings.get("jpeg") else {}
    )


@dataclass(frozen=True)
class _FileImages:
    """One file of a set, opened when it is looked at; the one looked at last stays open."""

    files: OfficialC
    type: str
    severity: int
    resized: StoredImages | None

    def images(self, x: Tensor, index: Tensor) -> Tensor:
        data = _opened(self.files, self.type, self.severity)
        shown = data.batch(self._within(index, len(data)), x.device).x
        shown = shown if self.resized is None else self.resized.resize(shown)
        if shown.shape != x.shape:
            sizes = ("×".join(map(str, each.shape[2:])) for each in (shown, x))
            raise UserError(
                "{} has images of {}, the data of {}; files must have the size that the images of the data are stored "
                "at, or that they are resized to".format(data.name, *sizes)
            )
        return shown

    def labels(self, index: Tensor) -> Tensor:
        data = _opened(self.files, self.type, self.severity)
        return data.labels[self._within(index, len(data)).cpu()]

    def _within(self, index: Tensor, count: int) -> Tensor:
        if int(index.max()) >= count:
            raise UserError(f"{self.type} has {count} images, the data has one numbered {int(index.max())}")
        return index


@functools.lru_cache(maxsize=2)
def _opened(files: OfficialC, type_: str, severity: int) -> Dataset:
    return files.dataset(type_, severity)


# ---------------------------------------------------------------- scores

# AlexNet's error on ImageNet-C, the mean over the five severities (Hendrycks and Dietterich 2019, their code)
ALEXNET_ERROR = dict(
    zip(
        COMMON,
        (
            0.886428, 0.894468, 0.922640, 0.819880, 0.826268, 0.785948, 0.798360, 0.866816, 0.826572, 0.819324,
            0.564592, 0.853204, 0.646056, 0.717840, 0.606500,
        ),
        strict=True,
    )
)  # fmt: skip
# of torchvision's AlexNet, which the benchmark's authors measured, as torchvision states it; with their table of
# ResNet-50 it gives a relative mCE of 105.4 where they print 105.0
ALEXNET_CLEAN_ERROR = 0.43478
WITHOUT_NOISE = tuple(name for name in COMMON if name not in NOISE)


def mean_corruption_error(error: Mapping[str, Any], types: Sequence[str] = COMMON, *, clean: Any = None) -> Any:
    """The mean over types of a model's error (its mean over the severities) in units of AlexNet's.

    Numbers, or vectors with one for each image. Given the error on `clean` images, relative mCE.
    """
    own, other = (0.0, 0.0) if clean is None else (clean, ALEXNET_CLEAN_ERROR)
    return np.mean([(error[name] - own) / (ALEXNET_ERROR[name] - other) for name in types], axis=0)


def corruption_results(measurement: Measurement) -> list[Result]:
    """Accuracy under each view, then their mean and, with ImageNet's constants, mCE."""
    views, columns = cast(Sequence[ImageView], measurement.views), measurement.columns
    common, flags = measurement.common, measurement.flags
    shared = {**common, "flags": tuple(flags), "n": len(columns["index"])}
    shared["extra"] = {**common["extra"], "source": views[0].source}
    results = []
    for view in views:
        right = columns[f"correct@{view.name}"]
        low, high = wilson(int(right.sum()), len(right))
        extra = _probabilities(columns, view.name, right) if view.confidence else {}
        results.append(
            Result(
                metric="corrupted_accuracy", value=float(right.mean()), low=low, high=high, attack=view.name,
                attack_settings=view.settings, **{**shared, "extra": {**shared["extra"], **extra}},
            )
        )  # fmt: skip
    return results + _sums(views, columns, shared)


def _probabilities(columns: Mapping[str, np.ndarray], name: str, right: np.ndarray) -> dict[str, float]:
    """Of one view: the mean probability of the true class, and the calibration error."""
    error = calibration_error(columns[f"certainty@{name}"], right)
    return {"confidence": float(columns[f"confidence@{name}"].mean()), "calibration_error": error}


def _sums(views: Sequence[View], columns: Mapping[str, np.ndarray], shared: Mapping[str, Any]) -> list[Result]:
    types = list(dict.fromkeys(view.settings["type"] for view in views))
    severities = sorted({view.settings["severity"] for view in views})
    grid = np.stack([columns[f"correct@{view.name}"] for view in views], axis=1).astype(float)
    first = views[0].settings
    how = {"types": types, "severities": severities, "constants": first["constants"]}
    how |= {name: first[name] for name in ("jpeg", "files", "corrupted_at", "resized") if name in first}
    overlays = [view.settings["overlays"] for view in views if "overlays" in view.settings]  # frost's
    how |= {"overlays": overlays[0]} if overlays else {}
    words = _words(types, severities, how)
    results = []
    groups = [tuple(types), WITHOUT_NOISE] if tuple(types) == COMMON else [tuple(types)]
    for chosen in groups:
        error = 1 - grid[:, [view.settings["type"] in chosen for view in views]].mean(axis=1)
        low, high = bootstrap(error)
        results.append(
            Result(
                metric="mean_corrupted_error", value=float(error.mean()), low=low, high=high,
                attack=_words(chosen, severities, how), attack_settings=how | {"types": list(chosen)},
                interval="bootstrap 95%", **shared,
            )
        )  # fmt: skip
    per_image = grid.mean(axis=1)
    low, high = bootstrap(per_image)
    results.append(
        Result(
            metric="mean_corrupted_accuracy", value=float(per_image.mean()), low=low, high=high, attack=words,
            attack_settings=how, interval="bootstrap 95%", **shared,
        )
    )  # fmt: skip
    if how["constants"] != "imagenet" or severities != [1, 2, 3, 4, 5] or not set(COMMON) <= set(types):
        return results
    of_type = {
        name: 1 - grid[:, [view.settings["type"] == name for view in views]].mean(axis=1) for name in COMMON
    }  # per image
    clean = 1 - columns["clean_correct"].astype(float)
    for metric, chosen, scaled in (
        ("mean_corruption_error", COMMON, mean_corruption_error(of_type)),
        ("mean_corruption_error", WITHOUT_NOISE, mean_corruption_error(of_type, WITHOUT_NOISE)),
        ("relative_corruption_error", COMMON, mean_corruption_error(of_type, clean=clean)),
    ):
        low, high = bootstrap(scaled)
        units = {name: ALEXNET_ERROR[name] for name in chosen}
        units |= {"clean": ALEXNET_CLEAN_ERROR} if metric == "relative_corruption_error" else {}
        results.append(
            Result(
                metric=metric, value=float(scaled.mean()), low=low, high=high, attack=_words(chosen, severities, how),
                attack_settings=how | {"types": list(chosen)}, interval="bootstrap 95%",
                **{**shared, "extra": {**shared["extra"], "units": units}},
            )
        )  # fmt: skip
    return results


def _words(types: Sequence[str], severities: Sequence[int], how: Mapping[str, Any]) -> str:
    """`15 common types × 5 severities, frost drawn, JPEG 85`, or which types where they are few."""
    groups = {COMMON: "15 common types", WITHOUT_NOISE: "12 common types without noise"}
    named = groups.get(tuple(types)) or (", ".join(types) if len(types) <= 3 else f"{len(types)} types")
    depth = "5 severities" if list(severities) == [1, 2, 3, 4, 5] else f"severity {', '.join(map(str, severities))}"
    drawn = "frost" in types and "procedural" in str(how.get("overlays", how.get("frost", "")))
    special = ["frost drawn"] * drawn + ([f"JPEG {how['jpeg']}"] if "jpeg" in how else [])
    return ", ".join([f"{named} × {depth}", *special])


def corruption_grid(results: Sequence[Result]) -> list[str]:
    """A line for each type: its accuracy at each severity, and their mean."""
    rows: dict[str, dict[int, float]] = {}
    for result in results:
        if result.metric == "corrupted_accuracy":
            rows.setdefault(result.attack_settings["type"], {})[result.attack_settings["severity"]] = result.value
    severities = sorted({severity for row in rows.values() for severity in row})
    lines = [f"{'accuracy (%) at severity':<32} " + "  ".join(f"{severity:>5}" for severity in severities) + "   mean"]
    for name, row in rows.items():
        cells = "  ".join(f"{100 * row[severity]:5.1f}" if severity in row else "    –" for severity in severities)
        lines.append(f"{name.replace('_', ' '):<32} {cells}  {100 * float(np.mean(list(row.values()))):5.1f}")
    return lines
