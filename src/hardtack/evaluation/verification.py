"""Does the evidence of a run support its stored results (`hardtack verify`)?

Every field of every line of `results.jsonl` is recomputed, or compared with what is stored beside it:

1. files      values, intervals and counts from the verdict files, everything else with the evidence record
              (`hardtack.results.agreement`; no model is needed)
2. settings   the id, the attacks, threats and flags from the stored settings, the model and the data
              (`reconstruction.py`)
3. model      clean predictions and stored adversarial images, in fp32 (`stored_images.py`)
4. sample=K   the measurement itself, on K images (`rerun.py`)

What none of this can show is named as not verifiable. The attacks are repeated in the last step only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.attacks import preserve_state
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.pool.verifier import SECOND_VOTE, Verifier
from hardtack.base.config import parse_words
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.base.limits import shorten
from hardtack.base.trust import check_links, stored_settings
from hardtack.data import Dataset, batches
from hardtack.evaluation.job import EvaluationJob, read_job
from hardtack.evaluation.reconstruction import UNVERIFIABLE, Reconstruction, reconstruct
from hardtack.evaluation.rerun import measure_again, read_sample
from hardtack.evaluation.settings import EvaluationConfig, not_taken
from hardtack.evaluation.stored_images import ImageCheck, attack_limits, check_examples, check_images
from hardtack.evaluation.suites import votes
from hardtack.evaluation.target import Target, complete, load_target, note_missing_images
from hardtack.evaluation.views import clean_columns
from hardtack.models.from_file import named_place
from hardtack.results import (
    ANALYSIS,
    PROTOCOL,
    REPORTED,
    Result,
    adversarial_folder,
    read_results,
    read_verdicts,
    verdicts_path,
)
from hardtack.results.agreement import check_results, repeated_keys
from hardtack.results.bundle import open_bundle
from hardtack.results.disagreement import Agreement
from hardtack.results.evidence import Evidence, image_digests, read_evidence

Columns = dict[str, np.ndarray]
MOST_WORDS = 1000  # settings of one stored evaluation
_CLEAN_TOLERANCE = 1e-3  # of probabilities; another device rounds differently


@dataclass(frozen=True)
class Verification:
    """The outcome for one evaluation. `wrong` has a line for every check that failed, `unverifiable` for every part
    of it without evidence."""

    evaluation: str
    images: int
    broken: int
    confirmed: int
    wrong: tuple[str, ...]
    attacked: bool = True
    eight_bits: tuple[int, int, int] | None = None  # stored images; still misclassified when rounded; inside the ball
    unverifiable: tuple[str, ...] = ()
    summary: str = ""  # what was checked, for results that are no evaluation
    again: str = ""  # what was measured again

    def __str__(self) -> str:
        verdict = "verified" if not self.wrong else "NOT VERIFIED"
        if not self.wrong and self.summary:
            verdict = "consistent"
        images = (
            f"{self.confirmed} of {self.broken} broken images confirmed, {self.images} clean predictions"
            if self.attacked
            else f"{self.images} clean predictions, every number counted again; other images are not repeated"
        )
        lines = [f"{self.evaluation}: {verdict}: {self.summary or images}"]
        if self.eight_bits is not None:
            stored, fooling, inside = self.eight_bits
            lines.append(
                f"  rounded to 8 bits: {fooling} of {stored} are still misclassified, {inside} of these inside the ball"
            )
        lines += [f"  {self.again}"] if self.again else []
        lines += [f"  wrong: {line}" for line in self.wrong]
        return "\n".join([*lines, *(f"  not verifiable: {line}" for line in self.unverifiable)])


def never_verifiable() -> str:
    """A line about the fields that no evidence can show."""
    return f"not verifiable in any result: {', '.join(UNVERIFIABLE)} (only the machine that measured knows them)"


@dataclass(frozen=True)
class _Request:
    """What the user asked for: the folder, the run that was measured, settings, and how thorough the check is."""

    folder: Path
    source: Path
    settings: Mapping[str, Any]
    typed: Mapping[str, Any]
    eight: bool
    sample: int | None


def verify(run: str | Path, words: Iterable[str] = ()) -> list[Verification]:
    """Check every stored result of a run folder or of a bundle (`hardtack bundle`).

    Settings: evaluation=ID for one of them; sample=K to measure K images again (all: every image); bits=8 to check
    images rounded to 8 bits too; run=PATH of the run that was measured, or of its weights, if they are not in the same
    folder; model=NAME and settings such as data.root=PATH.
    """
    settings = parse_words(words)
    typed = dict(settings)
    wanted, bits = settings.pop("evaluation", None), settings.pop("bits", None)
    measured_run, sample = settings.pop("run", None), read_sample(settings.pop("sample", None))
    if bits not in (None, 8):
        raise UserError(f"bits can only be 8, found bits={bits}")
    path = local_path(run)
    with _opened(path) as (folder, checked):
        check_links(folder)
        source = folder if measured_run is None else local_path(measured_run)
        request = _Request(folder, source, settings, typed, bits == 8, sample)
        results = read_results(folder)
        groups: dict[str, list[Result]] = {}
        for result in results:
            groups.setdefault(result.evaluation, []).append(result)
        if not groups:
            raise UserError(f"{path} holds no evaluation; {_what_to_verify(path)}")
        if wanted is not None and wanted not in groups:
            hint = did_you_mean(str(wanted), groups) or f"; there are {', '.join(groups)}"
            raise UserError(f"{path} holds no evaluation '{wanted}'{hint}")
        agreements = check_results(folder, results)
        for id, lines in repeated_keys(folder).items():
            if id in agreements:
                agreements[id].wrong += lines
        chosen = groups if wanted is None else {wanted: groups[wanted]}
        return [*checked, *(_verify(request, id, lines, agreements[id]) for id, lines in chosen.items())]


def _what_to_verify(path: Path) -> str:
    """What to do about a folder without results: name a run inside it, or measure."""
    runs = sorted(file.parent for file in path.glob("*/results.jsonl"))
    return f"name one run: hardtack verify {runs[0]}" if runs else f"make one with hardtack evaluate {path}"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Path, list[Verification]]]:
    """The run folder, and the check of the bundle that it was unpacked from."""
    if path.is_file():
        with open_bundle(path) as bundle:
            summary = f"{bundle.files} files compared with the manifest, whose digest is {bundle.digest}"
            yield bundle.folder, [Verification(str(path), 0, 0, 0, bundle.wrong, summary=summary)]
    elif path.is_dir():
        yield path, []
    else:
        raise UserError(f"there is no run folder or bundle {path}")


def _verify(request: _Request, id: str, lines: list[Result], agreement: Agreement) -> Verification:
    wrong, notes = list(map(str, agreement.wrong)), list(map(str, agreement.unverifiable))
    first = lines[0]
    if first.suite in (PROTOCOL, ANALYSIS, REPORTED) or first.extra.get("source") == REPORTED:
        return _without_model(id, lines, wrong, notes)
    try:
        columns = read_verdicts(verdicts_path(request.folder, id))
    except UserError as error:
        return Verification(id, 0, 0, 0, (str(error), *wrong))
    loaded = _load(request, first, wrong)
    if loaded is None:
        return Verification(id, 0, 0, 0, tuple(wrong), unverifiable=tuple(notes))
    job, config, target = loaded
    if len(target.data) != len(columns["index"]):
        wrong.append(f"the data has {len(target.data)} images now, the evaluation has {len(columns['index'])}")
    record = _record(request.folder, id, wrong)
    target.model.to(job.runtime.torch_device)
    with preserve_state(target.model):
        rebuilt = _reconstruct(request, target, job, config, lines, columns, record)
    with preserve_state(target.model), guard_input(target.model):
        verifier = _verifier(target, job, config)
        wrong += _new(rebuilt.wrong, wrong) + _clean(verifier, target.data, columns)
        images = ImageCheck()
        if "robust" in columns:
            limits, stored = attack_limits(config, job.runtime.seed), adversarial_folder(request.folder, id)
            images = check_images(verifier, target.data, stored, columns, limits, eight=request.eight)
        wrong += check_examples(target.data, request.folder, id, columns)
    again = ""
    if request.sample is not None:
        again, differences, broken = measure_again(target, config, job.runtime, columns, request.sample)
        wrong += differences
        _confirm_by_rerun(images, broken, columns)
    notes += rebuilt.unverifiable
    if record is None:
        notes.append(f"there is no evidence record evidence/{id}.json (version 0.1.0 wrote none)")
    return Verification(
        id, len(columns["index"]), images.broken, images.confirmed, tuple(dict.fromkeys([*wrong, *images.wrong])),
        attacked="robust" in columns, again=again, unverifiable=tuple(dict.fromkeys(notes)),
        eight_bits=_three(images.rounded) if request.eight and "robust" in columns else None,
    )  # fmt: skip


def _without_model(id: str, lines: Sequence[Result], wrong: list[str], notes: list[str]) -> Verification:
    """Rows of protocols, analyses and reported numbers: what can be compared is in the folder."""
    kinds = {
        PROTOCOL: f"{len(lines)} columns counted again and compared with the evaluations that they were taken from",
        ANALYSIS: f"{len(lines)} numbers of an analysis counted again",
    }
    if lines[0].suite == PROTOCOL:  # a row that is no copy of anything has no evidence at all
        wrong, notes = wrong + [note for note in notes if "measured_by" in note], notes
    if lines[0].suite == ANALYSIS:
        notes = [*notes, "what an analysis measured for each image; hardtack analyze repeats it"]
    summary = kinds.get(lines[0].suite, f"{len(lines)} numbers that others report")
    return Verification(id, 0, 0, 0, tuple(wrong), unverifiable=tuple(notes), summary=summary)


def _three(counts: np.ndarray) -> tuple[int, int, int]:
    return int(counts[0]), int(counts[1]), int(counts[2])


def _new(lines: Sequence[str], known: Sequence[str]) -> list[str]:
    """Lines about fields that were not named yet."""
    named = {line.split(": stored ")[0] for line in known}
    return [line for line in lines if line.split(": stored ")[0] not in named]


# ---------------------------------------------------------------- what is needed for the check


def _load(request: _Request, result: Result, wrong: list[str]) -> tuple[EvaluationJob, EvaluationConfig, Target] | None:
    """The settings, the model and the data; None, and a line in `wrong`, if they do not exist."""
    stored = _stored_words(request.folder, result)
    try:
        stored = {name: value for name, value in stored.items() if name not in not_taken(result.suite)}
    except UserError as error:
        wrong.append(f"suite: stored {shorten(result.suite)}: {error}")
        return None
    stored.setdefault("suite", result.suite)
    typed = _typed_for(stored, request.settings)
    values = stored_settings(stored, typed, folder=request.folder, code=named_place)
    if "model" not in values and not (request.source.is_file() or (request.source / "checkpoints").is_dir()):
        wrong.append(
            "not verifiable without the model: there is none beside the results; name the run that was measured or its "
            "weights (run=RUN or run=FILE.safetensors), or the model (model=NAME model.weights=FILE)"
        )
        return None
    run = None if "model" in values else request.source
    if run != request.folder and (request.folder / "config.yaml").is_file():
        values = complete(request.folder, values)  # the user named the model; the data is that of the run
    try:
        job = read_job(run, values)
        config = next(config for config in job.configs() if config.suite == result.suite)
    except StopIteration:
        wrong.append(f"suite: stored {shorten(result.suite)}, its settings give {shorten(str(values.get('suite')))}")
        return None
    return job, config, note_missing_images(load_target(run, job), job.n, quiet=True)


def _typed_for(stored: Mapping[str, Any], typed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The typed settings for one evaluation: `attack.…` only consents to what that evaluation has stored."""
    mine, theirs = typed.get("attack"), stored.get("attack")
    if not isinstance(mine, dict):
        return typed
    kept = {key: value for key, value in mine.items() if isinstance(theirs, dict) and key in theirs}
    rest = {name: value for name, value in typed.items() if name != "attack"}
    return {**rest, "attack": kept} if kept else rest


def _stored_words(folder: Path, result: Result) -> dict[str, Any]:
    """The settings that the evaluation was made with, as the run folder says."""
    words, where = (
        result.extra.get("words", []),
        f"{folder / 'results.jsonl'}: the words of {shorten(result.evaluation)}",
    )
    if not isinstance(words, list) or len(words) > MOST_WORDS or not all(isinstance(word, str) for word in words):
        raise UserError(f"{where} are no list of at most {MOST_WORDS} texts")
    try:
        return parse_words(words)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _record(folder: Path, id: str, wrong: list[str]) -> Evidence | None:
    """The evidence record; files of images that are not those it was written with are named."""
    try:
        record = read_evidence(folder, id)
    except UserError:  # named before
        return None
    if record is None:
        return None
    found = image_digests(folder, id)
    for name in dict.fromkeys([*record.images, *found]):
        if record.images.get(name) != found.get(name):
            state = "missing" if name not in found else "new" if name not in record.images else "changed"
            wrong.append(
                f"{shorten(name)}: the file of adversarial images is {state}: changed since the evidence was written"
            )
    return record


def _verifier(target: Target, job: EvaluationJob, config: EvaluationConfig) -> Verifier:
    """A model with random outputs votes as often as in the vote that decided."""
    times = votes(config)
    return Verifier(target.model, job.runtime, votes=times if times == 1 else times * SECOND_VOTE)


def _reconstruct(
    request: _Request,
    target: Target,
    job: EvaluationJob,
    config: EvaluationConfig,
    lines: list[Result],
    columns: Columns,
    record: Evidence | None,
) -> Reconstruction:
    return reconstruct(
        request.folder, target, job, config, lines, columns, record=record, typed=request.typed
    )  # fmt: skip


# ---------------------------------------------------------------- with the model


def _clean(verifier: Verifier, data: Dataset, columns: Columns) -> list[str]:
    """A line for every column about clean images that the model and the data do not give."""
    place = {int(index): row for row, index in enumerate(columns["index"])}
    strangers = set(place) - set(data.index.tolist())
    changed: dict[str, list[int]] = {}
    for batch in batches(data, 256, device=verifier.runtime.torch_device):
        logits = verifier.logits(batch.x.clamp(0, 1))
        found = {name: value.cpu().numpy() for name, value in clean_columns(logits, batch.y).items()}
        found["label"] = batch.y.cpu().numpy()
        index = batch.index.cpu().numpy()
        rows = np.array([place.get(int(number), -1) for number in index])
        for name in (name for name in found if name in columns):
            same = (rows >= 0) & _same(name, columns[name][rows], found[name], votes=verifier.votes)
            changed.setdefault(name, []).extend(index[~same].tolist())
    lines = []
    if strangers:
        lines.append(f"index: {len(strangers)} rows are no images of this data, the first at index {min(strangers)}")
    names = [name for name in ("clean_prediction", "label") if changed.get(name)]
    if names:
        both = sorted({number for name in names for number in changed[name]})
        text = f"{len(both)} clean predictions or labels differ from the stored ones ({', '.join(names)})"
        return [*lines, f"{text}, the first at index {both[:1]}"]
    return lines + [
        f"{name}: {len(numbers)} values differ from those of the model, the first at index {numbers[0]}"
        for name, numbers in changed.items()
        if numbers
    ]


def _same(name: str, stored: np.ndarray, found: np.ndarray, *, votes: int) -> np.ndarray:
    if name in ("clean_confidence", "clean_certainty"):
        return np.abs(stored - found) <= (_CLEAN_TOLERANCE if votes == 1 else 1.0)
    return (stored == found) | (name == "clean_rank" and votes > 1)


def _confirm_by_rerun(images: ImageCheck, broken: set[int], columns: Columns) -> None:
    """Broken images of which none was kept are confirmed if measuring again broke all of them."""
    claimed = (
        set(columns["index"][columns["clean_correct"] & ~columns["robust"]].tolist()) if "robust" in columns else set()
    )
    if images.missing and claimed <= broken:
        images.wrong = [line for line in images.wrong if "not on disk" not in line]
        images.confirmed = images.broken
