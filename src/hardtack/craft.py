"""`hardtack attack`: adversarial images of a model, as arrays and as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hardtack.api import load_target
from hardtack.config import parse_words
from hardtack.errors import UserError
from hardtack.evaluation import Evaluation, evaluate
from hardtack.evaluation.outcome import eight_bits
from hardtack.results import write_arrays


class Crafted(NamedTuple):
    summary: str
    arrays: Path
    picture: Path


def craft(run: str | Path | None, words: Iterable[str]) -> Crafted:
    """Attack the first `n` (16) images; `output` (default `adversarial/`) receives arrays and a picture."""
    given = {"n": 16, **parse_words(words)}
    output = Path(given.pop("output", None) or "adversarial").expanduser()
    target, job = load_target(run, given)
    if len(job.configs()) > 1:
        raise UserError(f"an attack takes one suite at a time, found suite={job.suite}")
    config = dataclasses.replace(job.configs()[0], examples=len(target.data))
    measured = evaluate(target.model, target.data, config=config, runtime=job.runtime)
    arrays = write_arrays(output / "adversarial.npz", measured.examples)
    threat = measured.results[-1].threat or "no attack"
    picture = _picture(measured, target.data.classes, threat, output / "adversarial.png")
    correct, robust = int(measured.verdicts["clean_correct"].sum()), int(measured.robust.sum())
    summary = f"{len(measured.robust)} images: {correct} right when clean, {robust} still right under {threat}"
    return Crafted(summary, arrays, picture)


def _picture(measured: Evaluation, classes: tuple[str, ...], threat: str, path: Path) -> Path:
    """Clean, adversarial and magnified perturbation side by side, one row per image."""
    from hardtack.report.figures import write_examples_figure
    from hardtack.results import Gallery

    examples = {**measured.examples, "x": eight_bits(measured.examples["x"])}
    return write_examples_figure(Gallery(id=measured.id, threat=threat, classes=classes, **examples), path)
