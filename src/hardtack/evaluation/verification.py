"""Do the stored adversarial images of a run support its stored numbers (`hardtack verify`)?

For every evaluation of the run, each stored adversarial image is loaded and checked: inside the ball of the threat,
inside [0,1], and misclassified by the run's model in fp32. The attack is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks import preserve_state
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.pool.verifier import SECOND_VOTE, Verifier
from hardtack.base.arrays import read_arrays
from hardtack.base.config import parse_words
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import shorten
from hardtack.base.trust import check_links, stored_settings
from hardtack.data import Dataset, batches
from hardtack.evaluation.job import EvaluationJob, read_job
from hardtack.evaluation.settings import not_taken
from hardtack.evaluation.suites import make_suite, votes
from hardtack.evaluation.target import load_target
from hardtack.models.from_file import named_place
from hardtack.results import (
    ANALYSIS,
    PROTOCOL,
    Result,
    adversarial_folder,
    per_image,
    read_results,
    read_verdicts,
    verdicts_path,
)
from hardtack.threats import Threat

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Verification:
    """The outcome for one evaluation. `wrong` has a line for every check that failed."""

    evaluation: str
    images: int
    broken: int
    confirmed: int
    wrong: tuple[str, ...]
    attacked: bool = True
    eight_bits: tuple[int, int, int] | None = None  # stored images; still misclassified when rounded; inside the ball

    def __str__(self) -> str:
        verdict = "verified" if not self.wrong else "NOT VERIFIED"
        images = (
            f"{self.confirmed} of {self.broken} broken images confirmed, {self.images} clean predictions"
            if self.attacked
            else f"{self.images} clean predictions, every number counted again; its corrupted images are not repeated"
        )
        lines = [f"{self.evaluation}: {verdict}: {images}"]
        if self.eight_bits is not None:
            stored, fooling, inside = self.eight_bits
            lines.append(
                f"  rounded to 8 bits: {fooling} of {stored} are still misclassified, {inside} of these inside the ball"
            )
        return "\n".join([*lines, *(f"  {line}" for line in self.wrong)])


def verify(run: str | Path, words: Iterable[str] = ()) -> list[Verification]:
    """Check every stored evaluation of a run.

    Settings: evaluation=ID for one of them; bits=8 to check images rounded to 8 bits too; run=PATH of the run that was
    measured, if its evaluations were written to another folder; and settings such as data.root=PATH.
    """
    settings = parse_words(words)
    wanted, bits = settings.pop("evaluation", None), settings.pop("bits", None)
    measured_run = settings.pop("run", None)
    if bits not in (None, 8):
        raise UserError(f"bits can only be 8, found bits={bits}")
    folder = Path(run).expanduser()
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    check_links(folder)
    stored = {result.evaluation: result for result in read_results(folder) if _can_be_checked(result)}
    if not stored:
        raise UserError(f"{folder} holds no evaluation; make one with hardtack evaluate {folder}")
    if wanted is not None and wanted not in stored:
        hint = did_you_mean(wanted, stored) or f"; there are {', '.join(stored)}"
        raise UserError(f"{folder} holds no evaluation '{wanted}'{hint}")
    chosen = stored if wanted is None else {wanted: stored[wanted]}
    source = folder if measured_run is None else Path(measured_run).expanduser()
    return [_verify(folder, source, result, settings, eight=bits == 8) for result in chosen.values()]


def _can_be_checked(result: Result) -> bool:
    """Evaluations have verdicts of their own; rows of protocols, reported numbers and analyses have not."""
    return result.verdicts is not None and result.suite not in (PROTOCOL, ANALYSIS)


def _verify(folder: Path, source: Path, result: Result, settings: dict[str, Any], *, eight: bool) -> Verification:
    stored = _stored_words(folder, result)
    stored = {name: value for name, value in stored.items() if name not in not_taken(result.suite)}
    values = stored_settings(stored, settings, folder=folder, code=named_place)
    if "model" not in values and not (source / "checkpoints").is_dir():
        raise UserError(f"{source} holds no model; name the run that was measured: hardtack verify {folder} run=RUN")
    run = None if "model" in values else source
    job = read_job(run, values)
    target = load_target(run, job)
    try:
        columns = read_verdicts(verdicts_path(folder, result.evaluation))
    except UserError as error:
        return Verification(result.evaluation, 0, 0, 0, (str(error),))
    place = {int(index): row for row, index in enumerate(columns["index"])}
    wrong = []
    if target.provenance.weights_sha256 != result.weights_sha256:
        wrong.append("the weights are not those that were measured")
    if len(target.data) != len(place):
        wrong.append(f"the data has {len(target.data)} images now, the evaluation has {len(place)}")
    target.model.to(job.runtime.torch_device)
    times = votes(job)  # a model with random outputs votes as often as in the vote that decided
    verifier = Verifier(target.model, job.runtime, votes=times if times == 1 else times * SECOND_VOTE)
    claimed = [other for other in read_results(folder) if other.evaluation == result.evaluation]
    if "robust" not in columns:  # corrupted images depend on their seed alone, and none were kept
        with preserve_state(target.model), guard_input(target.model):
            wrong += _clean(verifier, target.data, columns, place)
        wrong += [line for claim in claimed for line in _recount(claim, columns)]
        return Verification(result.evaluation, len(place), 0, 0, tuple(wrong), attacked=False)
    with preserve_state(target.model), guard_input(target.model):
        wrong += _clean(verifier, target.data, columns, place)
        limits, images = _limits(job, result.suite), adversarial_folder(folder, result.evaluation)
        broken = _broken(verifier, target.data, images, columns, place, limits, eight=eight)
    wrong += _reasons(columns) + broken.wrong + [line for claim in claimed for line in _recount(claim, columns)]
    return Verification(
        result.evaluation,
        len(place),
        broken.images,
        broken.confirmed,
        tuple(wrong),
        eight_bits=broken.rounded if eight else None,
    )


def _stored_words(folder: Path, result: Result) -> dict[str, Any]:
    """The settings that the evaluation was made with, as the run folder says."""
    words = result.extra.get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{folder / 'results.jsonl'}: the words of {shorten(result.evaluation)} are no list of texts")
    try:
        return parse_words(words)
    except UserError as error:
        raise UserError(f"{folder / 'results.jsonl'}: the words of {shorten(result.evaluation)}: {error}") from None


def _clean(verifier: Verifier, data: Dataset, columns: Columns, place: dict[int, int]) -> list[str]:
    """A line if clean predictions or labels differ from the stored ones."""
    changed: list[int] = []
    for batch in batches(data, 256, device=verifier.runtime.torch_device):
        index, labels = batch.index.cpu().numpy(), batch.y.cpu().numpy()
        rows = np.array([place.get(int(number), -1) for number in index])
        clean = verifier.logits(batch.x.clamp(0, 1)).argmax(dim=1).cpu().numpy()
        same = (rows >= 0) & (columns["clean_prediction"][rows] == clean) & (columns["label"][rows] == labels)
        changed += index[~same].tolist()
    text = f"{len(changed)} clean predictions or labels differ from the stored ones, the first at index {changed[:1]}"
    return [text] if changed else []


def _reasons(columns: Columns) -> list[str]:
    """A line if verdicts contradict each other: a broken image must name its attack and a threat."""
    broken = columns["clean_correct"] & ~columns["robust"]
    reason = np.array([by is not None for by in columns["broken_by"]])
    each = [verdicts for name, verdicts in columns.items() if name.startswith("robust@")]
    worst = np.logical_and.reduce(each) if each else columns["clean_correct"]
    odd = np.flatnonzero((broken != reason) | (worst != columns["robust"]))
    text = f"{len(odd)} verdicts contradict each other, the first at index {columns['index'][odd[:1]].tolist()}"
    return [text] if len(odd) else []


class _Broken(NamedTuple):
    images: int
    confirmed: int
    rounded: tuple[int, int, int]
    wrong: list[str]


def _broken(
    verifier: Verifier,
    data: Dataset,
    folder: Path,
    columns: Columns,
    place: dict[int, int],
    limits: dict[str, Any],
    *,
    eight: bool,
) -> _Broken:
    """Whether every image that counts as broken under a threat has a stored adversarial image inside that threat.

    Files are read one by one, so that memory holds one chunk at a time.
    """
    unconfirmed = _claims(columns)
    claimed = set().union(*unconfirmed.values()) if unconfirmed else set()
    row_of = {int(index): row for row, index in enumerate(data.index)}
    kept: set[int] = set()
    rounded, wrong = np.zeros(3, dtype=np.int64), []
    for path in sorted(folder.glob("*.npz")):
        try:
            arrays = read_arrays(path)
        except UserError as error:
            wrong.append(str(error))
            continue
        if len({len(arrays.get(name, ())) for name in ("index", "threat", "x_adv")}) != 1:
            wrong.append(f"{path} is damaged: its arrays differ in length")
            continue
        here = [n for n, index in enumerate(arrays["index"].tolist()) if index in claimed and index in row_of]
        for start in range(0, len(here), 256):
            part = here[start : start + 256]
            index = arrays["index"][part].tolist()
            kept |= set(index)
            device = verifier.runtime.torch_device
            x_adv = torch.from_numpy(arrays["x_adv"][part]).to(device)
            clean = data.batch([row_of[number] for number in index], device)
            x, fooled = clean.x.clamp(0, 1), _fooled(verifier, x_adv, clean.y)
            for reason, attack in limits.items():
                mine = torch.tensor([columns["broken_by"][place[number]] == reason for number in index], device=device)
                fooled = fooled & (~mine | attack.allows(x_adv, x, verifier.model))
            for threat, images in unconfirmed.items():
                holds = (fooled & threat.contains(x_adv, x)).tolist()
                images -= {number for number, fine in zip(index, holds, strict=True) if fine}
            if eight:
                made_for = [Threat.parse(text) for text in arrays["threat"][part].tolist()]
                round_trip = _eight_bits(x_adv, x, made_for)
                still = _fooled(verifier, round_trip, clean.y)
                rounded += [len(part), int(still.sum()), int((still & _inside(round_trip, x, made_for)).sum())]
    missing, failed = claimed - kept, set().union(*unconfirmed.values()) & kept if unconfirmed else set()
    if missing:
        wrong.append(
            f"{len(missing)} broken images are not on disk (keep=false, or deleted), the first at index {min(missing)}"
        )
    if failed:
        wrong.append(
            f"{len(failed)} stored images are classified correctly or lie outside the ball: index {sorted(failed)[:5]}"
        )
    return _Broken(
        len(claimed),
        len(claimed) - len(missing) - len(failed),
        (int(rounded[0]), int(rounded[1]), int(rounded[2])),
        wrong,
    )


def _limits(job: EvaluationJob, suite: str) -> dict[str, Any]:
    """The attacks by the names that `broken_by` has for them; each may have limits beside its threat."""
    config = next(config for config in job.configs() if config.suite == suite)
    trials = make_suite(config).threat_stages(config, job.runtime.seed)
    stages = [(f"{stage.name} {trial.threat}", stage.attack) for trial in trials for stage in trial.stages]
    return dict(stages)


def _claims(columns: Columns) -> dict[Threat, set[int]]:
    """For every threat, the images that count as broken under it."""
    claims = {}
    for name, robust in columns.items():
        if name.startswith("robust@"):
            broken = columns["clean_correct"] & ~robust
            claims[Threat.parse(name.removeprefix("robust@"))] = set(columns["index"][broken].tolist())
    return claims


def _fooled(verifier: Verifier, x_adv: Tensor, y: Tensor) -> Tensor:
    logits = verifier.logits(x_adv)
    good = logits.isfinite() | (logits.isneginf() & (verifier.votes > 1))  # a probability that was 0 in every vote
    return good.all(dim=1) & (logits.argmax(dim=1) != y)


def _inside(x_adv: Tensor, x: Tensor, threats: list[Threat]) -> Tensor:
    return torch.stack([threat.contains(a[None], b[None])[0] for threat, a, b in zip(threats, x_adv, x, strict=True)])


def _eight_bits(x_adv: Tensor, x: Tensor, threats: list[Threat]) -> Tensor:
    """Rounded as in an image file: to the nearest of 256 levels, or towards x if that lies outside the ball."""
    nearest = (x_adv * 255).round() / 255
    inwards = torch.where(x_adv > x, (x_adv * 255).floor(), (x_adv * 255).ceil()) / 255
    return torch.where(_inside(nearest, x, threats).reshape(-1, 1, 1, 1), nearest, inwards)


def _recount(result: Result, columns: Columns) -> list[str]:
    """A line if a number is not the mean of its per-image values; numbers that are no such mean are not checked."""
    vector = per_image(result, columns)
    if vector is None or abs(vector.mean() - result.value) < 1e-6:
        return []
    return [
        f"{result.metric} {result.threat or result.attack or ''}: stored {result.value}, counted again {vector.mean()}"
    ]
