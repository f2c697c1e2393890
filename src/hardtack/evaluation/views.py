"""Views: other versions of the images that the model is shown, and what is noted about each image.

A view takes a batch, shows it to the model in one changed form or in many, and returns columns with one value per
image. What is random in it is drawn from the image's number in the data set, so that a view is the same whatever the
batch, the order or the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.data.official import OfficialC
from hardtack.engine import tensor_digest

ViewColumns = dict[str, Tensor]
"""Columns of the verdicts: a name, which ends in `@` and the view's name, and one value per image."""


class Shown(NamedTuple):
    """Images that a view shows together, M×3×H×W, and of which image of the batch each of them is a version."""

    images: Tensor
    rows: Tensor


class View:
    """The contract of a view: `name`, `source`, `settings` and `columns`; everything else has a default.

    `source` is `official` (files as published) or `regenerated`; `settings` are stored with the results.

    A view whose columns follow from the predictions alone, or from the order of the likeliest classes, has `shown` and
    `from_classes` in place of `columns`, and `places`: of how many classes it needs the order. A GPU then computes
    most of them in coarser arithmetic (`predictor.py`). 0: the columns need logits.

    `alone`: every batch is of one image, or of few images that are shown very often, so that a piece may have any
    number of images and yet be the same on a CPU.
    """

    name: str
    source: str
    settings: dict[str, Any]
    places: int = 0
    alone: bool = False

    @property
    def cost(self) -> Cost:
        """Passes of one image through the model."""
        return Cost(1)

    @property
    def kind(self) -> str:
        """Views of one kind take the same time: `fog` of `fog/3`."""
        return str(self.settings.get("type", self.name))

    def columns(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> ViewColumns:
        """Columns for images x in [0,1] with labels y. `verifier.logits` runs the model in fp32."""
        return self.columns_of(verifier, self.shown(verifier, x, y, index), y)

    def columns_of(self, verifier: Verifier, shown: Iterable[Shown], y: Tensor) -> ViewColumns:
        """Columns from what `shown` yields, in fp32."""
        places = max(1, self.places)
        parts = [(likeliest(finite_logits(verifier, images, self.name), places), rows) for images, rows in shown]
        return self.from_classes(*zip(*parts, strict=True), y=y)

    def shown(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Iterator[Shown]:
        """What the model is shown, in as many parts as suits the view."""
        raise NotImplementedError

    def from_classes(self, classes: Sequence[Tensor], rows: Sequence[Tensor], *, y: Tensor) -> ViewColumns:
        """Columns from the likeliest classes, M×places for each part that was shown, and the part's `rows`."""
        raise NotImplementedError

    def identity(self) -> list[Any]:
        """Everything that decides what the view shows; part of the evaluation's id."""
        return [self.name, self.source, self.settings]

    def stored_in(self) -> list[Any]:
        """Where the files are that the view shows, and how they were made; nothing for regenerated images."""
        return []

    def content(self, x: Tensor, index: Tensor) -> str:
        """A digest of what the files of the view hold for these images; empty for regenerated images."""
        return ""

    def sample(self) -> tuple[View, float]:
        """A smaller view with the same cost per pass, and how many of it make this one: to estimate the time."""
        return self, 1

    def stand_in(self, tried: View, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Columns under the names of this view's, from those of `tried`: a view of its kind, or its sample."""
        end = f"@{tried.name}"
        return {name.removesuffix(end) + f"@{self.name}": part for name, part in columns.items() if name.endswith(end)}


@dataclass(frozen=True, kw_only=True)
class ImageView(View):
    """`fog/3`: the images as `show(x, index)` returns them, once.

    Columns: `correct@` and, with `confidence`, `confidence@` (probability of the true class) and `certainty@` (of the
    predicted class).
    """

    name: str
    show: Callable[[Tensor, Tensor], Tensor]
    source: str = "regenerated"
    settings: dict[str, Any] = field(default_factory=dict)
    labels: Callable[[Tensor], Tensor] | None = None  # of the images with these numbers, where files bring labels
    files: OfficialC | None = None  # that the images come from
    confidence: bool = True

    @property
    def places(self) -> int:  # type: ignore[override]
        return 0 if self.confidence else 1

    def identity(self) -> list[Any]:
        return [*super().identity(), *([] if self.confidence else ["predictions"])]

    def stored_in(self) -> list[Any]:
        return file_identity(self.files)

    def content(self, x: Tensor, index: Tensor) -> str:
        return "" if self.files is None else tensor_digest({"shown": self.show(x, index)})

    def columns(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> ViewColumns:
        if self.places:
            return super().columns(verifier, x, y, index)
        self._same_labels(y, index)
        logits = finite_logits(verifier, self.show(x, index), self.name)
        return {
            f"correct@{self.name}": logits.argmax(dim=1) == y,
            f"confidence@{self.name}": confidence(logits, y),
            f"certainty@{self.name}": certainty(logits),
        }

    def shown(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Iterator[Shown]:
        self._same_labels(y, index)
        yield Shown(self.show(x, index), torch.arange(len(x), device=x.device))

    def from_classes(self, classes: Sequence[Tensor], rows: Sequence[Tensor], *, y: Tensor) -> ViewColumns:
        return {f"correct@{self.name}": classes[0][:, 0] == y}

    def _same_labels(self, y: Tensor, index: Tensor) -> None:
        """Refuse files whose labels differ: files are matched with the data by position."""
        if self.labels is None:
            return
        differ = (self.labels(index) != y.cpu()).nonzero()[:, 0]
        if len(differ):
            at = int(index[differ[0]])
            raise UserError(
                f"{self.name}: image {at} has another label in the files than in the data ({len(differ)} of {len(y)} "
                f"do); the data must be the test set that the files were made from, in its order"
            )


def file_identity(files: Any) -> list[Any]:
    """Where official files are and how they were made; nothing for regenerated images."""
    return [] if files is None else [str(files.location.resolve()), files.description]


def finite_logits(verifier: Verifier, x: Tensor, name: str) -> Tensor:
    """The logits of images under a view. NaN is refused: its argmax would be class 0, right or wrong by chance."""
    logits = verifier.logits(x)
    if not logits.isfinite().all():
        raise not_finite(name)
    return logits


def not_finite(name: str) -> UserError:
    return UserError(f"the model returns NaN or infinite logits on images under {name}")


def likeliest(logits: Tensor, places: int) -> Tensor:
    """N×places: the likeliest classes in their order (all, where there are fewer); of equals the first comes first."""
    if places == 1:
        return logits.argmax(dim=1, keepdim=True)
    return logits.argsort(dim=1, descending=True, stable=True)[:, :places]


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """The probability of the true class."""
    return logits.float().softmax(dim=1).gather(1, y[:, None])[:, 0]


def certainty(logits: Tensor) -> Tensor:
    """The probability of the predicted class."""
    return logits.float().softmax(dim=1).amax(dim=1)


def clean_columns(logits: Tensor, y: Tensor) -> ViewColumns:
    """Columns about the unchanged images. `clean_rank`: how many classes score above the true one."""
    own, classes = logits.gather(1, y[:, None]), torch.arange(logits.shape[1], device=y.device)
    ahead = (logits > own) | ((logits == own) & (classes < y[:, None]))  # of equals argmax takes the first
    return {
        "clean_prediction": logits.argmax(dim=1), "clean_correct": logits.argmax(dim=1) == y,
        "clean_confidence": confidence(logits, y), "clean_certainty": certainty(logits),
        "clean_rank": ahead.sum(dim=1),
    }  # fmt: skip
