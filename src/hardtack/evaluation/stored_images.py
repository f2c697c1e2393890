"""Stored adversarial images checked with the model: inside the threat, inside [0,1], misclassified in fp32.

Every image that counts as broken needs a stored image that breaks it, and no stored image may contradict a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.arrays import read_arrays
from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.evaluation.evaluation import eight_bits
from hardtack.evaluation.suites import make_suite
from hardtack.results.evidence import examples_path
from hardtack.threats import Threat

Columns = Mapping[str, np.ndarray]
_SIZE_TOLERANCE = 1e-4
_AT_ONCE = 256


@dataclass
class ImageCheck:
    """What the stored images show. `missing`: images that count as broken and of which none is stored."""

    broken: int = 0
    confirmed: int = 0
    missing: int = 0
    rounded: np.ndarray = field(default_factory=lambda: np.zeros(3, dtype=np.int64))  # see `eight_bits` of Verification
    wrong: list[str] = field(default_factory=list)


def attack_limits(config: Any, seed: int) -> dict[str, Any]:
    """The attacks by the names that `broken_by` has for them; each may have limits beside its threat."""
    trials = make_suite(config).threat_stages(config, seed)
    stages = [(f"{stage.name} {trial.threat}", stage.attack) for trial in trials for stage in trial.stages]
    return dict(stages)


def check_images(
    verifier: Verifier, data: Dataset, folder: Path, columns: Columns, limits: Mapping[str, Any], *, eight: bool
) -> ImageCheck:
    """Check all files of stored images, one by one, so that memory holds one chunk at a time."""
    check = ImageCheck()
    unconfirmed = _claims(columns)
    claimed: set[int] = set().union(*unconfirmed.values()) if unconfirmed else set()
    place = {int(index): row for row, index in enumerate(columns["index"])}
    row_of = {int(index): row for row, index in enumerate(data.index)}
    stored: set[int] = set()
    notes: dict[str, list[int]] = {"contradicts": [], "size": [], "adversarial_prediction": []}
    for path in sorted(folder.glob("*.npz")):
        arrays = _read(path, tuple(data.image_shape), check)
        numbers = arrays["index"].tolist() if arrays else []
        rows = [row for row, number in enumerate(numbers) if number in place and number in row_of]
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            index = [numbers[row] for row in part]
            stored |= set(index)
            batch = data.batch([row_of[number] for number in index], verifier.runtime.torch_device)
            x_adv = torch.from_numpy(arrays["x_adv"][part]).to(batch.x)
            threats = [Threat.parse(str(text)) for text in arrays["threat"][part].tolist()]
            chunk = _Chunk(verifier, index, x_adv, batch.x.clamp(0, 1), batch.y, threats)
            chunk.confirm(unconfirmed, columns, place, limits)
            chunk.compare(columns, place, notes)
            if eight:
                check.rounded += chunk.rounded()
    missing = claimed - stored
    failed = (set().union(*unconfirmed.values()) if unconfirmed else set()) & stored
    check.broken, check.missing, check.confirmed = len(claimed), len(missing), len(claimed) - len(missing | failed)
    if missing:
        check.wrong.append(
            f"{len(missing)} broken images are not on disk (keep=false, or deleted), the first at index {min(missing)}"
            "; they are not verifiable without measuring again (sample=all)"
        )
    if failed:
        check.wrong.append(
            f"{len(failed)} stored images are classified correctly or lie outside the ball: index {sorted(failed)[:5]}"
        )
    check.wrong += _notes(notes)
    return check


def _notes(notes: Mapping[str, list[int]]) -> list[str]:
    texts = {
        "contradicts": "images count as robust, but a stored adversarial image of them is misclassified",
        "size": "sizes of perturbations (column size) differ from those of the stored images",
        "adversarial_prediction": "predictions (column adversarial_prediction) differ from those for the stored images",
    }
    return [f"{len(found)} {texts[name]}: index {sorted(found)[:5]}" for name, found in notes.items() if found]


def _read(path: Path, shape: tuple[int, ...], check: ImageCheck) -> dict[str, np.ndarray]:
    try:
        arrays = read_arrays(path)
    except UserError as error:
        check.wrong.append(str(error))
        return {}
    if len({len(arrays.get(name, ())) for name in ("index", "threat", "x_adv")}) != 1:
        check.wrong.append(f"{path} is damaged: its arrays differ in length")
        return {}
    if arrays["x_adv"].shape[1:] != shape or arrays["x_adv"].dtype.kind != "f":
        check.wrong.append(f"{path} has images of {arrays['x_adv'].shape[1:]}, the data has {shape}")
        return {}
    try:
        for text in np.unique(arrays["threat"]).tolist():
            Threat.parse(str(text))
    except UserError as error:
        check.wrong.append(f"{path}: {error}")
        return {}
    return arrays


def _claims(columns: Columns) -> dict[Threat, set[int]]:
    """For every threat, the images that count as broken under it."""
    claims = {}
    for name, robust in columns.items():
        if name.startswith("robust@"):
            broken = columns["clean_correct"] & ~robust
            claims[Threat.parse(name.removeprefix("robust@"))] = set(columns["index"][broken].tolist())
    return claims


class _Chunk:
    """A few stored images: `index` (numbers of the images), x_adv and x (N×3×H×W), labels y, threats made for."""

    def __init__(
        self, verifier: Verifier, index: list[int], x_adv: Tensor, x: Tensor, y: Tensor, threats: list[Threat]
    ) -> None:
        self.verifier, self.index, self.x_adv, self.x, self.y, self.threats = verifier, index, x_adv, x, y, threats
        self.predicted, self.fooled = self._look(x_adv)
        self.inside = inside(x_adv, x, threats)

    def _look(self, x_adv: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.verifier.logits(x_adv)
        # a probability that was 0 in every vote is −inf
        good = logits.isfinite() | (logits.isneginf() & (self.verifier.votes > 1))
        return logits.argmax(dim=1), good.all(dim=1) & (logits.argmax(dim=1) != self.y)

    def confirm(
        self, unconfirmed: dict[Threat, set[int]], columns: Columns, place: dict[int, int], limits: Mapping[str, Any]
    ) -> None:
        """Remove from `unconfirmed` the images that these stored ones break, threat by threat."""
        fooled = self.fooled
        for reason, attack in limits.items():
            mine = [columns["broken_by"][place[number]] == reason for number in self.index]
            if any(mine):
                allowed = attack.allows(self.x_adv, self.x, self.verifier.model)
                fooled = fooled & (~torch.tensor(mine, device=fooled.device) | allowed)
        for threat, images in unconfirmed.items():
            holds = (fooled & threat.contains(self.x_adv, self.x)).tolist()
            images -= {number for number, fine in zip(self.index, holds, strict=True) if fine}

    def compare(self, columns: Columns, place: dict[int, int], notes: dict[str, list[int]]) -> None:
        """Note images that contradict a verdict, and columns that are not what the images show."""
        fooled, within, predicted = self.fooled.tolist(), self.inside.tolist(), self.predicted.tolist()
        for at, (number, threat) in enumerate(zip(self.index, self.threats, strict=True)):
            row = place[number]
            robust = columns.get(f"robust@{threat}")
            if fooled[at] and within[at] and robust is not None and robust[row]:
                notes["contradicts"].append(number)
            if not str(columns["broken_by"][row]).endswith(f" {threat}"):
                continue  # `size` and `adversarial_prediction` are about the image that broke it first
            size = float(threat.size(self.x_adv[at : at + 1] - self.x[at : at + 1])[0])
            if not abs(size - float(columns["size"][row])) <= _SIZE_TOLERANCE * max(size, 1e-3):
                notes["size"].append(number)
            if self.verifier.votes == 1 and predicted[at] != columns["adversarial_prediction"][row]:
                notes["adversarial_prediction"].append(number)

    def rounded(self) -> list[int]:
        """Images; those still misclassified when rounded to 8 bits; those of them inside the ball."""
        round_trip = round_to_eight_bits(self.x_adv, self.x, self.threats)
        _, still = self._look(round_trip)
        return [
            len(self.index),
            int(still.sum()),
            int((still & inside(round_trip, self.x, self.threats)).sum()),
        ]


def inside(x_adv: Tensor, x: Tensor, threats: list[Threat]) -> Tensor:
    """Whether each image lies inside its own threat and inside [0,1]."""
    return torch.stack([threat.contains(a[None], b[None])[0] for threat, a, b in zip(threats, x_adv, x, strict=True)])


def round_to_eight_bits(x_adv: Tensor, x: Tensor, threats: list[Threat]) -> Tensor:
    """Rounded as in an image file: to the nearest of 256 levels, or towards x if that lies outside the ball."""
    nearest = (x_adv * 255).round() / 255
    inwards = torch.where(x_adv > x, (x_adv * 255).floor(), (x_adv * 255).ceil()) / 255
    return torch.where(inside(nearest, x, threats).reshape(-1, 1, 1, 1), nearest, inwards)


def check_examples(data: Dataset, folder: Path, id: str, columns: Columns) -> list[str]:
    """The example images of the page are images of the data, with the predictions of the verdict file."""
    path = examples_path(folder, id)
    if not path.is_file():
        return []
    try:
        arrays = read_arrays(path)
    except UserError as error:
        return [str(error)]
    place = {int(index): row for row, index in enumerate(columns["index"])}
    row_of = {int(index): row for row, index in enumerate(data.index)}
    numbers = [int(number) for number in arrays.get("index", ())]
    if any(number not in place or number not in row_of for number in numbers):
        return [f"examples/{id}.npz has images that are not in the verdict file or not in the data"]
    wrong = []
    for name in ("label", "clean_prediction", "adversarial_prediction"):
        expected = [columns[name][place[number]] for number in numbers] if name in columns else None
        if expected is not None and name in arrays and arrays[name].tolist() != expected:
            wrong.append(f"examples/{id}.npz: {name}: the example images differ from the verdict file")
    if numbers and "x" in arrays:
        clean = data.batch([row_of[number] for number in numbers]).x.clamp(0, 1).permute(0, 2, 3, 1).numpy()
        if not np.array_equal(eight_bits(clean), arrays["x"]):
            wrong.append(f"examples/{id}.npz: x: the example images are not the images of the data")
    return wrong
