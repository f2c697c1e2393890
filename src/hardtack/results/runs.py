"""A run folder as one value: its configuration, metrics, results, findings and galleries of adversarial examples."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.arrays import read_arrays
from hardtack.base.config import read_yaml
from hardtack.base.errors import UserError
from hardtack.base.trust import check_links
from hardtack.results.agreement import check_results, disagrees, flag_disagreements
from hardtack.results.disagreement import Agreement
from hardtack.results.findings import Finding, finding_files, read_finding
from hardtack.results.record import Result
from hardtack.results.store import find_runs, read_metrics, read_results

_MOST_NAMED = 5  # fields of one evaluation
GALLERY_ARRAYS = ("x", "x_adv", "index", "label", "clean_prediction", "adversarial_prediction", "size")


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """k images and their adversarial examples.

    `x` (k×H×W×3 uint8), `x_adv` (k×H×W×3 float32 in [0, 1]); the rest have shape (k,). `size` is in the
    threat's norm, pixels in [0, 1].
    """

    id: str
    threat: str | None
    x: np.ndarray
    x_adv: np.ndarray
    index: np.ndarray
    label: np.ndarray
    clean_prediction: np.ndarray
    adversarial_prediction: np.ndarray
    size: np.ndarray
    classes: tuple[str, ...] = ()
    attack: str = ""  # as text, as in its results
    limits: str = ""  # limits of the perturbation beside the threat
    checkpoint: str = ""

    def class_name(self, number: int) -> str:
        return self.classes[number] if 0 <= number < len(self.classes) else str(number)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The contents of a run folder. `label` is its name, made unique among the runs that are read together."""

    path: Path
    label: str
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    galleries: list[Gallery] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)  # oldest first
    problems: list[str] = field(default_factory=list)
    agreements: dict[str, Agreement] = field(default_factory=dict)  # of results with their evidence, by evaluation

    @property
    def trusted(self) -> Run:
        """The run without results that their evidence contradicts."""
        return replace(self, results=[result for result in self.results if not disagrees(result)])


def read_runs(paths: str | Path | Iterable[str | Path]) -> list[Run]:
    """Read every run that `paths` name (see `find_runs`)."""
    folders = find_runs(paths)
    return [read_labelled(folder, label) for folder, label in zip(folders, run_labels(folders), strict=True)]


def read_run(path: str | Path) -> Run:
    """Read one run folder."""
    runs = read_runs(path)
    if len(runs) > 1:
        raise UserError(f"{path} holds {len(runs)} runs; name one of them, for example {runs[0].path}")
    return runs[0]


def run_labels(folders: list[Path]) -> list[str]:
    """Folder names; runs with equal names have as much of the path as distinguishes them."""
    parts = [folder.resolve().parts for folder in folders]
    labels = [part[-1] for part in parts]
    for length in range(2, max(len(part) for part in parts) + 1):
        shared = {label for label, count in Counter(labels).items() if count > 1}
        if not shared:
            break
        tails = ["/".join(part[-length:]) for part in parts]
        labels = [tail if label in shared else label for tail, label in zip(tails, labels, strict=True)]
    return labels


def read_labelled(folder: Path, label: str) -> Run:
    """Read a run. A file that cannot be read is reported as a problem and does not stop the other runs."""
    problems: list[str] = []

    def attempt(read: Callable[..., Any], *arguments: Any, otherwise: Any) -> Any:
        try:
            return read(*arguments)
        except UserError as error:
            problems.append(str(error))
            warnings.warn(str(error), stacklevel=4)
            return otherwise

    try:
        check_links(folder)
    except UserError as error:  # nothing of a folder that leads elsewhere is read
        warnings.warn(str(error), stacklevel=3)
        return Run(path=folder, label=label, problems=[str(error)])
    results = attempt(read_results, folder, otherwise=[])
    galleries = [
        attempt(_read_gallery, path, results, otherwise=None) for path in sorted(folder.glob("examples/*.npz"))
    ]
    agreements = check_results(folder, results)
    results = flag_disagreements(results, agreements)
    for id, agreement in agreements.items():
        problems += [f"{id} is not what its evidence gives: {wrong}" for wrong in agreement.wrong[:_MOST_NAMED]]
    analysed = [attempt(read_finding, path, results, otherwise=None) for path in finding_files(folder)]
    return Run(
        path=folder,
        label=label,
        config=attempt(_read_config, folder / "config.yaml", otherwise={}),
        metrics=attempt(read_metrics, folder, otherwise=[]),
        results=results,
        galleries=[gallery for gallery in galleries if gallery is not None],
        findings=sorted(filter(None, analysed), key=lambda finding: str(finding.about.get("created", ""))),
        problems=problems,
        agreements=agreements,
    )


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return read_yaml(path, alone=True)


def _read_gallery(path: Path, results: list[Result]) -> Gallery:
    arrays = read_arrays(path)
    missing = [name for name in GALLERY_ARRAYS if name not in arrays]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}")
    x, x_adv = arrays["x"], arrays["x_adv"]
    count = len(x)
    if x.ndim != 4 or x.shape[-1] not in (1, 3) or x.shape != x_adv.shape or x.dtype != np.uint8:
        raise UserError(f"{path}: x and x_adv must both be k×H×W×3, found {x.shape} and {x_adv.shape}")
    if any(arrays[name].shape != (count,) for name in GALLERY_ARRAYS[2:]):
        raise UserError(f"{path}: index, label, predictions and size must have one entry per image")
    if x.shape[-1] == 1:  # of a model that takes grey images
        arrays |= {"x": x.repeat(3, axis=-1), "x_adv": x_adv.repeat(3, axis=-1)}
    names = arrays.get("classes", arrays.get("class_names"))
    about = next((result for result in results if result.evaluation == path.stem and result.attack), None)
    return Gallery(
        id=path.stem,
        attack="" if about is None else str(about.attack),
        limits="" if about is None else str(about.extra.get("limits", "")),
        checkpoint="" if about is None else about.checkpoint or "",
        threat=_gallery_threat(path.stem, arrays, results),
        classes=() if names is None else tuple(str(name) for name in names.tolist()),
        **{name: arrays[name] for name in GALLERY_ARRAYS},
    )


def _gallery_threat(id: str, arrays: dict[str, np.ndarray], results: list[Result]) -> str | None:
    if "threat" in arrays:
        return str(arrays["threat"])
    threats = {result.threat for result in results if result.evaluation == id and result.threat}
    return threats.pop() if len(threats) == 1 else None
