"""Adversarial examples as pictures: clean, attacked, and the perturbation magnified around grey."""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from hardtack.report import wording
from hardtack.results import Gallery, Run

Key = tuple[int, int, bytes]  # index, label, pixels
Holders = dict[Key, list[tuple[int, Run, Gallery, int]]]
SHOWN = 8  # images of one attack; fewer where many runs are shown beside each other
EXACT_SIDE = 64  # up to here PNG is small and every pixel counts; above it noise would fill megabytes


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What the attack made of one image for one run."""

    run: int
    run_name: str
    adversarial: str
    perturbation: str
    prediction: str
    fooled: bool
    already_wrong: bool
    size: str  # empty where it was not attacked


@dataclass(frozen=True, kw_only=True)
class Example:
    index: int
    label: str
    clean: str
    attempts: list[Attempt]


@dataclass(frozen=True, kw_only=True)
class AttackExamples:
    """Examples of one attack under one threat; one magnification for all, so that perturbations compare by eye."""

    attack: str
    threat: str
    limits: str
    factor: int
    examples: list[Example]
    shared: bool

    @property
    def attacked(self) -> bool:
        """Whether any image was: those that were wrong to begin with are not."""
        return any(attempt.size for example in self.examples for attempt in example.attempts)


def attack_examples(runs: Sequence[Run]) -> list[AttackExamples]:
    """Galleries of all runs by attack and threat; an image that several runs were attacked on is shown once."""
    groups: dict[tuple[Any, ...], list[tuple[int, Run, Gallery]]] = defaultdict(list)
    for number, run in enumerate(runs):
        for gallery in run.galleries:
            about = (gallery.attack, gallery.threat, gallery.limits, gallery.x.shape[1:])
            groups[about].append((number, run, gallery))
    all_groups = [_group(entries) for entries in groups.values()]
    shown = [group for group in all_groups if group.examples]
    return sorted(shown, key=lambda group: not group.attacked)


def magnification(galleries: Sequence[Gallery]) -> int:
    """The power of two that spreads the perturbations over the grey scale without clipping most of them."""
    changed = [np.abs(perturbation(gallery)[_attacked(gallery)]) for gallery in galleries]
    peak = max((np.quantile(deltas, 0.995) for deltas in changed if len(deltas)), default=0.0)
    if peak < 1e-5:  # nothing but rounding of the float32 pixels
        return 1
    # The slack keeps 8/255 at ×16, although 8·16/255 and the half step of x's 8 bits reach over one half.
    return int(2 ** np.clip(np.floor(np.log2(0.54 / peak)), 0, 8))


def _attacked(gallery: Gallery) -> np.ndarray:
    """Which images were: a perturbation without a size was not looked for."""
    return ~np.isnan(gallery.size.astype(float))


def perturbation(gallery: Gallery) -> np.ndarray:
    """x_adv - x, k×H×W×3."""
    return gallery.x_adv.astype(np.float64) - gallery.x / 255


def magnified(delta: np.ndarray, factor: int) -> np.ndarray:
    """A perturbation H×W×3 as a picture (uint8): grey where nothing changed."""
    return np.round(255 * np.clip(0.5 + factor * delta, 0, 1)).astype(np.uint8)


def to_uint8(x: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(x, 0, 1)).astype(np.uint8)


def data_uri(pixels: np.ndarray) -> str:
    """An H×W×3 or grey H×W×1 uint8 picture as a data: address."""
    pixels = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
    exact = max(pixels.shape[:2]) <= EXACT_SIDE
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    if exact:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "WEBP", quality=85)
    kind = "png" if exact else "webp"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _group(entries: list[tuple[int, Run, Gallery]]) -> AttackExamples:
    about = entries[0][2]
    factor = magnification([gallery for _, _, gallery in entries])
    holders: Holders = defaultdict(list)
    for number, run, gallery in entries:
        for row, index in enumerate(gallery.index.tolist()):
            # The pixels are part of the key: index 7 of another data set is another image.
            key = (index, int(gallery.label[row]), gallery.x[row].tobytes())
            # The same weights attacked twice in the same way, on 16 images and on all: once is enough.
            if all(
                (earlier, other.checkpoint) != (number, gallery.checkpoint) for earlier, _, other, _ in holders[key]
            ):
                holders[key].append((number, run, gallery, row))
    chosen = _choose(holders)
    everyone = {number for number, _, _ in entries}
    return AttackExamples(
        attack=about.attack,
        threat=about.threat or "",
        limits=about.limits,
        factor=factor,
        examples=[_example(key[0], holders[key], factor) for key in chosen],
        shared=all({number for number, *_ in holders[key]} == everyone for key in chosen),
    )


def _choose(holders: Holders) -> list[Key]:
    """The images most runs share; then, for a run with fewer than three of those, some of its own.

    One that was wrong to begin with was not attacked and shows little: it comes last, and where no run attacked it
    only as the single card of a run that has nothing else.
    """

    def spared(key: Key) -> int:
        return sum(not _attacked(gallery)[row] for _, _, gallery, row in holders[key])

    def order(key: Key) -> tuple[int, int, int]:
        return -len(holders[key]), spared(key), key[0]

    telling = [key for key in holders if spared(key) < len(holders[key])]
    chosen = _most_shared(sorted(telling, key=order), holders)
    seen = {number for key in chosen for number, *_ in holders[key]}
    for key in sorted(set(holders) - set(telling), key=order):
        if any(number not in seen for number, *_ in holders[key]):
            chosen.append(key)
            seen |= {number for number, *_ in holders[key]}
    return sorted(chosen, key=lambda key: spared(key) > 0)


def _most_shared(ordered: Sequence[Key], holders: Holders) -> list[Key]:
    most = len(holders[ordered[0]]) if ordered else 0
    chosen = [key for key in ordered if len(holders[key]) == most][: max(3, min(SHOWN, 36 // max(1, most)))]
    seen: dict[int, int] = defaultdict(int)
    for key in chosen:
        for number, *_ in holders[key]:
            seen[number] += 1
    for key in ordered:
        if key not in chosen and any(seen[number] < 3 for number, *_ in holders[key]):
            chosen.append(key)
            for number, *_ in holders[key]:
                seen[number] += 1
    return chosen


def _example(index: int, held: list[tuple[int, Run, Gallery, int]], factor: int) -> Example:
    _, _, gallery, row = held[0]
    return Example(
        index=index,
        label=wording.class_name(gallery.class_name(int(gallery.label[row]))),
        clean=data_uri(gallery.x[row]),
        attempts=[_attempt(*entry, factor, several=sum(entry[0] == other[0] for other in held) > 1) for entry in held],
    )


def _attempt(number: int, run: Run, gallery: Gallery, row: int, factor: int, *, several: bool) -> Attempt:
    label, prediction = int(gallery.label[row]), int(gallery.adversarial_prediction[row])
    return Attempt(
        run=number,
        run_name=f"{run.label} ({gallery.checkpoint})" if several and gallery.checkpoint else run.label,
        adversarial=data_uri(to_uint8(gallery.x_adv[row])),
        perturbation=data_uri(magnified(perturbation(gallery)[row], factor)),
        prediction=wording.class_name(gallery.class_name(prediction)),
        fooled=prediction != label,
        already_wrong=int(gallery.clean_prediction[row]) != label,
        size=wording.size(float(gallery.size[row]), gallery.threat),
    )
