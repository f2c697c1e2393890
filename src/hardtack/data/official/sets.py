"""What `open_official` returns: corruptions by type and severity, sequences by type, or one shifted set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.corruptions.catalogue import COMMON, SEVERITIES
from hardtack.data.datasets import Dataset, measured_whole
from hardtack.data.official.checksums import PUBLISHED
from hardtack.data.official.kinds import PERTURBATIONS, Source, title
from hardtack.data.original import first_shape
from hardtack.data.source import Stored


@dataclass(frozen=True)
class OfficialC:
    """CIFAR-10-C, CIFAR-100-C, ImageNet-C, Tiny-ImageNet-C, or a user's images in one of these layouts.

    types         those that are there, in the papers' order; common ones first
    classes       the names the labels point to; 1000 synsets for ImageNet-C, whatever part of it is there
    source        `official`, `regenerated` or `own`; every `Dataset` opened from here carries it too
    description   what this is and what is missing, for results
    """

    kind: str
    location: Path
    source: Source
    types: tuple[str, ...]
    classes: tuple[str, ...]
    description: str
    read: Callable[[str, int], Stored] = field(repr=False)
    compare: Callable[[], tuple[str, ...]] | None = field(default=None, repr=False)
    severities: tuple[int, ...] = SEVERITIES
    class_subset: Tensor | None = None
    made: dict[str, Any] = field(
        default_factory=dict, compare=False
    )  # how, where the marker of a regenerated set says it

    @property
    def missing(self) -> tuple[str, ...]:
        """The common types that are not there; mCE and the mean over 15 types need all of them."""
        return tuple(name for name in COMMON if name not in self.types)

    def stored(self, corruption: str, severity: int) -> Stored:
        """One type and severity, labels known, images not yet read."""
        _require(corruption, self.types, self.location)
        if severity not in self.severities:
            raise UserError(f"{title(self.kind)}: severity must be 1, 2, 3, 4 or 5, found {severity}")
        return self.read(corruption, severity)

    def image_shape(self) -> tuple[int, int]:
        """Height and width of the first image of the first type."""
        return first_shape(self.read(self.types[0], self.severities[0]).images)

    def dataset(self, corruption: str, severity: int, **settings: Any) -> Dataset:
        """One type and severity as a data set; `settings` as in `DataConfig` (image_size, limit, workers …)."""
        name = f"{self.kind}:{self.location}/{corruption}/{severity}"
        return measured_whole(self.stored(corruption, severity), name, **settings)

    def verify(self) -> tuple[str, ...]:
        """The files that differ from the published ones by their MD5 sum, none if all is well; reads gigabytes."""
        if self.compare is None:
            titles = ", ".join(title(kind) for kind in PUBLISHED)
            raise UserError(f"{title(self.kind)}: checksums of the files are published for {titles} only")
        return self.compare()


class Video(NamedTuple):
    """frames: F×3×H×W uint8; label: −1 where none is stored; index: the video's place in its type."""

    frames: Tensor
    label: int
    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody wants here


@dataclass(frozen=True)
class OfficialP:
    """ImageNet-P, Tiny-ImageNet-P or CIFAR-10/100-P: short videos in which an image is perturbed more and more."""

    kind: str
    location: Path
    source: Source
    types: tuple[str, ...]
    classes: tuple[str, ...]
    description: str
    count: Callable[[str], int] = field(repr=False)
    read: Callable[[str, range, int], Iterator[Video]] = field(repr=False)
    class_subset: Tensor | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of the ten types that are not there; CIFAR-P counts spatter in snow's place."""
        wanted = ("spatter" if name == "snow" and "cifar" in self.kind else name for name in PERTURBATIONS)
        return tuple(name for name in wanted if name not in self.types)

    def videos(
        self, perturbation: str, *, start: int = 0, stop: int | None = None, workers: int = 4
    ) -> Iterator[Video]:
        """Videos `start` … `stop` of one type in stored order, `workers` of them decoded ahead."""
        _require(perturbation, self.types, self.location)
        return self.read(perturbation, range(self.count(perturbation))[start:stop], workers)


@dataclass(frozen=True)
class Shift:
    """ImageNet-A, -R, -V2 or -Sketch.

    Labels are indices into the 1000 classes. `class_subset` (200 int64, ascending; none for V2 and Sketch) are the
    classes that occur: `logits[:, class_subset]` with labels `torch.searchsorted(class_subset, y)`.
    """

    kind: str
    location: Path
    source: Source
    classes: tuple[str, ...]
    class_subset: Tensor | None
    description: str
    read: Callable[[], Stored] = field(repr=False)
    types: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()

    def stored(self) -> Stored:
        return self.read()

    def dataset(self, **settings: Any) -> Dataset:
        """The set; `settings` as in `DataConfig`. The images differ in size, so give `image_size`."""
        return measured_whole(self.read(), f"{self.kind}:{self.location}", **settings)


Official = OfficialC | OfficialP | Shift


def _require(name: str, types: Collection[str], location: Path) -> None:
    if name not in types:
        raise UserError(f"{location} has no type '{name}'{did_you_mean(name, types)}; it has {', '.join(types)}")
