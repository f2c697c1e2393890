"""Adversarial images of the first images of a data set, kept as arrays (`hardtack attack`)."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hardtack.base.config import parse_words
from hardtack.base.errors import UserError
from hardtack.base.files import local_path
from hardtack.evaluation.evaluation import Evaluation, eight_bits
from hardtack.evaluation.job import read_job
from hardtack.evaluation.suite import evaluate
from hardtack.evaluation.target import load_target, note_missing_images
from hardtack.results import Gallery, Result, read_arrays, write_arrays

FIRST = "adversarial"


class Crafted(NamedTuple):
    """What was written, a summary for the user, and the images with what a picture of them needs."""

    summary: str
    arrays: Path
    gallery: Gallery


def craft(run: str | Path | None, words: Iterable[str]) -> Crafted:
    """Attack the first `n` (16) images; the folder `output` (default `adversarial`) receives their arrays."""
    typed = parse_words(words)
    values = {"n": 16, **typed}
    output = local_path(str(values.pop("output", None) or FIRST))
    job = read_job(run, values)
    if len(job.configs()) > 1:
        raise UserError(f"attack takes one suite at a time, found suite={job.suite}")
    target = note_missing_images(load_target(run, job), job.n if "n" in typed else None)
    config = dataclasses.replace(job.configs()[0], examples=len(target.data))
    measured = evaluate(target.model, target.data, config=config, runtime=job.runtime, provenance=target.provenance)
    protocol = _protocol(measured.results[-1])
    path = _free_path(output, protocol)
    arrays = write_arrays(path, {**measured.examples, "protocol": protocol})
    threat = measured.results[-1].threat or "no attack"
    examples: dict[str, Any] = {**measured.examples, "x": eight_bits(measured.examples["x"])}
    gallery = Gallery(id=measured.id, threat=threat, classes=target.data.classes, **examples)
    return Crafted(_summary(measured, threat, path), arrays, gallery)


def _summary(measured: Evaluation, threat: str, path: Path) -> str:
    correct, robust = int(measured.verdicts["clean_correct"].sum()), int(measured.robust.sum())
    limits = measured.results[-1].extra.get("limits")
    under = f"{threat}, {limits}" if limits else threat
    lines = [f"{len(measured.robust)} images: {correct} correctly classified, {robust} still correct under {under}"]
    lines += [f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for flag in measured.flags]
    if path.stem != FIRST:
        lines.append(f"{path.parent} already holds other adversarial images; these were written beside them")
    return "\n".join(lines)


def _protocol(result: Result) -> str:
    """Everything that the images depend on, as one text."""
    names = (
        "suite", "attack", "attack_settings", "threat", "data", "data_description", "n", "run", "model", "checkpoint",
        "weights_sha256", "seed", "precision", "versions",
    )  # fmt: skip
    return json.dumps({name: getattr(result, name) for name in names}, sort_keys=True)


def _free_path(folder: Path, protocol: str) -> Path:
    """`adversarial.npz`, or -2, -3 … where that file holds other images, so that none are overwritten."""
    numbered = (folder / f"{FIRST}-{number}.npz" for number in itertools.count(2))
    paths = itertools.chain([folder / f"{FIRST}.npz"], numbered)
    return next(path for path in paths if not path.exists() or _stored_protocol(path) == protocol)


def _stored_protocol(path: Path) -> str:
    try:
        return str(read_arrays(path).get("protocol", ""))
    except UserError:  # the file was not written by hardtack
        return ""
