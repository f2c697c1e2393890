"""`hardtack attack`: adversarial images of a model, as arrays and as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hardtack.api import load_target
from hardtack.config import merge, parse_words
from hardtack.evaluation import Evaluation, evaluate
from hardtack.results import write_arrays


class Crafted(NamedTuple):
    summary: str
    arrays: Path
    picture: Path


def craft(run: str | Path | None, words: Iterable[str]) -> Crafted:
    """Attack the first `n` (16) images; `output` (default `adversarial/`) receives arrays and a picture."""
    given = parse_words(words)
    count = int(given.get("n") or 16)
    short = given.pop("attack", {})  # attack=fgsm is short for attack.name=fgsm
    settings: dict[str, Any] = {"n": count, "examples": count, "attack": {"name": short} if isinstance(short, str) else short}
    output = Path(given.pop("output", None) or "adversarial").expanduser()
    target, job = load_target(run, merge(settings, given))
    (config,) = job.configs()
    measured = evaluate(target.model, target.data, config=config, runtime=job.runtime)
    arrays = write_arrays(output / "adversarial.npz", measured.examples)
    picture = _picture(measured, target.data.classes, str(job.threat), output / "adversarial.png")
    correct, robust = measured.verdicts["clean_correct"], measured.robust
    summary = f"{count} images: {int(correct.sum())} right when clean, {int(robust.sum())} still right under {job.threat}"
    return Crafted(summary, arrays, picture)


def _picture(measured: Evaluation, classes: tuple[str, ...], threat: str, path: Path) -> Path:
    """Clean, adversarial and magnified perturbation side by side, one row per image."""
    from hardtack.report.figures import write_examples_figure
    from hardtack.results import Gallery

    examples = {name: np.asarray(value) for name, value in measured.examples.items()}
    return write_examples_figure(Gallery(id=measured.id, threat=threat, classes=classes, **examples), path)
