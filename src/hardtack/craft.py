"""`hardtack attack`: adversarial images of a model, as arrays and as a picture."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hardtack.api import load_target
from hardtack.base.config import parse_words
from hardtack.base.errors import UserError
from hardtack.evaluation import Evaluation, evaluate
from hardtack.evaluation.outcome import eight_bits
from hardtack.results import Result, read_arrays, write_arrays


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
    measured = evaluate(target.model, target.data, config=config, runtime=job.runtime, subject=target.subject)
    protocol = _protocol(measured.results[-1])
    path = _free(output, protocol)
    arrays = write_arrays(path, {**measured.examples, "protocol": protocol})
    threat = measured.results[-1].threat or "no attack"
    picture = _picture(measured, target.data.classes, threat, path.with_suffix(".png"))
    return Crafted(_summary(measured, threat, path), arrays, picture)


def _summary(measured: Evaluation, threat: str, path: Path) -> str:
    correct, robust = int(measured.verdicts["clean_correct"].sum()), int(measured.robust.sum())
    limits = measured.results[-1].extra.get("limits")
    under = f"{threat}, {limits}" if limits else threat
    lines = [f"{len(measured.robust)} images: {correct} right when clean, {robust} still right under {under}"]
    lines += [f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for flag in measured.flags]
    if path.stem != FIRST:
        lines.append(f"{path.parent} holds other adversarial images already: these are beside them")
    return "\n".join(lines)


FIRST = "adversarial"


def _protocol(result: Result) -> str:
    """Everything that decides the images, as one text."""
    names = (
        "suite", "attack", "attack_settings", "threat", "data", "data_description", "n", "run", "model", "checkpoint",
        "weights_sha256", "seed", "precision", "versions",
    )  # fmt: skip
    return json.dumps({name: getattr(result, name) for name in names}, sort_keys=True)


def _free(folder: Path, protocol: str) -> Path:
    """`adversarial.npz`, or -2, -3 … where that holds other images: nothing is lost to a second attack."""
    others = (folder / f"{FIRST}-{number}.npz" for number in itertools.count(2))
    paths = itertools.chain([folder / f"{FIRST}.npz"], others)
    return next(path for path in paths if not path.exists() or _written(path) == protocol)


def _written(path: Path) -> str:
    try:
        return str(read_arrays(path).get("protocol", ""))
    except UserError:  # not ours
        return ""


def _picture(measured: Evaluation, classes: tuple[str, ...], threat: str, path: Path) -> Path:
    """Clean, adversarial and magnified perturbation side by side, one row per image."""
    from hardtack.report.figures import write_examples_figure
    from hardtack.results import Gallery

    examples: dict[str, Any] = {**measured.examples, "x": eight_bits(measured.examples["x"])}
    return write_examples_figure(Gallery(id=measured.id, threat=threat, classes=classes, **examples), path)
