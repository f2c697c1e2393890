"""What a survey looks at: images as the world, not an adversary, changes them.

A sight takes a batch, shows it to the model in one other way or in many, and says what came of it: columns with one
value per image. What is random in it belongs to the image (its number in the data set), so that a sight is the same
whatever the batch, the order or the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.data.official import OfficialC

Seen = dict[str, Tensor]
"""Columns of the verdicts: a name, which ends in `@` and the sight's name, and one value per image."""


class Sight(Protocol):
    """`source`: official files, or regenerated images. `settings` are stored with the results."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def cost(self) -> Cost:
        """Passes of one image."""
        ...

    def look(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Seen:
        """`verifier.logits` asks the model, in fp32; x in [0,1], on the device; nothing else remembers the images."""
        ...


def facts(sight: Sight) -> list[Any]:
    """All that decides what a sight shows; of files also where they lie and how they were made."""
    files = getattr(sight, "files", None)
    stored = [] if files is None else [str(files.location.resolve()), files.description]
    return [sight.name, sight.source, sight.settings, *stored]


@dataclass(frozen=True, kw_only=True)
class View:
    """`fog/3`: the images as `show(x, index)` has them, once; `correct@` and the true class's `confidence@`."""

    name: str
    show: Callable[[Tensor, Tensor], Tensor]
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    labels: Callable[[Tensor], Tensor] | None = None  # of the images numbered so, where the view brings its own
    files: OfficialC | None = None  # that the images come from
    cost = Cost(1)

    def look(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Seen:
        self._same_labels(y, index)
        logits = finite_logits(verifier, self.show(x, index), self.name)
        return {
            f"correct@{self.name}": logits.argmax(dim=1) == y,
            f"confidence@{self.name}": confidence(logits, y),
            f"certainty@{self.name}": certainty(logits),
        }

    def _same_labels(self, y: Tensor, index: Tensor) -> None:
        """Files are matched with the data by place; where the labels differ, they are of other images."""
        if self.labels is None:
            return
        differ = (self.labels(index) != y.cpu()).nonzero()[:, 0]
        if len(differ):
            at = int(index[differ[0]])
            raise UserError(
                f"{self.name}: image {at} has another label in the files than in the data ({len(differ)} of {len(y)} "
                f"do); the data must be the test set that the files were made from, in its order"
            )


def finite_logits(verifier: Verifier, x: Tensor, name: str) -> Tensor:
    """What the model says of images under a sight; of NaN the largest would be class 0, right or wrong by chance."""
    logits = verifier.logits(x)
    if not logits.isfinite().all():
        raise UserError(f"the model returns NaN or infinite logits on images under {name}")
    return logits


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """The probability of the true class."""
    return logits.float().softmax(dim=1).gather(1, y[:, None])[:, 0]


def certainty(logits: Tensor) -> Tensor:
    """The probability of the class predicted."""
    return logits.float().softmax(dim=1).amax(dim=1)


def clean_columns(logits: Tensor, y: Tensor) -> Seen:
    """What every evaluation notes of the images as they are. `clean_rank`: classes that the true one is behind."""
    own, classes = logits.gather(1, y[:, None]), torch.arange(logits.shape[1], device=y.device)
    ahead = (logits > own) | ((logits == own) & (classes < y[:, None]))  # of equals argmax takes the first
    return {
        "clean_prediction": logits.argmax(dim=1), "clean_correct": logits.argmax(dim=1) == y,
        "clean_confidence": confidence(logits, y), "clean_certainty": certainty(logits),
        "clean_rank": ahead.sum(dim=1),
    }  # fmt: skip
