"""Which images every step of an epoch sees: a function of (seed, epoch, step) alone.

Plainly, an epoch is the data set in a random order, cut into batches. `Draw` changes that:

repeats     Repeated augmentation (Hoffer et al., 2020; timm's RepeatAugSampler): a drawn image appears r times, each
            time augmented anew. An epoch keeps its number of draws, so it shows one r-th of the images. Inside a batch
            the copies stand apart, first copies first: mixup's neighbour is another image, and on several processes
            most copies of an image are on different ones. timm ends an epoch early, at a multiple of 256.
share       Of every batch, so many images come from the rows after the first `real` ones (synthetic images), spread
            evenly through the batch. They are gone through without end, shuffled anew on every pass and going on from
            epoch to epoch; an epoch is one pass over the `real` images.
crop        Random resized crops of the stored photographs, cut where they are decoded.

The `index` that images carry tells all of these apart (`SET` and `COPY` below), so that keys made of it differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.data import geometry
from hardtack.data.decode import Cut
from hardtack.data.stores import InOrder, OnDisk

if TYPE_CHECKING:
    from hardtack.data.datasets import Dataset

SET = 1 << 32  # added to the index of images for every set before theirs
COPY = 1 << 40  # added to the index of an image for every copy before this one
WINDOW = 4096  # images among which a set that can only be walked is shuffled
_SYNTHETIC = 0x5E7  # tells the order of a synthetic set from that of the others


@dataclass(frozen=True, kw_only=True)
class Crop:
    """A random box of each image (area as a share of it, width/height), resized to side×side, antialiased."""

    side: int
    area: tuple[float, float]
    ratio: tuple[float, float]
    interpolation: str
    stream: int

    def cutter(self, keys: Tensor) -> Cut:
        """Cuts image i (3×H×W uint8, or float in [0,1]) of a batch as its key says."""
        candidates, places = (part.tolist() for part in geometry.box_draws(keys, self.stream))
        return lambda slot, image: self._cut(image, candidates[slot], places[slot])

    def _cut(self, image: Tensor, candidates: list[list[float]], place: list[float]) -> Tensor:
        size = (image.shape[-2], image.shape[-1])
        # numbers, not tensors: for one image those would take half as long as decoding it
        top, left, tall, wide = geometry.crop_box(candidates, place, size, area=self.area, ratio=self.ratio)
        piece = image[:, top : top + tall, left : left + wide][None]
        piece = F.interpolate(
            piece, size=(self.side, self.side), mode=self.interpolation, antialias=True, align_corners=False
        )[0]
        return piece.clamp(0, 1) if piece.is_floating_point() else piece


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How training draws from a data set; the first `real` of its images make an epoch."""

    real: int
    repeats: int = 1
    share: float = 0.0
    crop: Crop | None = None

    def real_per_batch(self, batch_size: int) -> int:
        count = batch_size - round(batch_size * self.share)
        if not 0 < count <= batch_size or (self.share and count == batch_size):
            raise UserError(
                f"batches of {batch_size} cannot hold a share of {self.share:g} synthetic images and others"
            )
        return count


class Draws(NamedTuple):
    """The images of one step: `places` in the data set, and the number of the copy that each is (N int64)."""

    places: Tensor
    copies: Tensor

    def part(self, rank: int, world_size: int) -> Draws:
        """A process's contiguous share."""
        return Draws(*(each.tensor_split(world_size)[rank] for each in self))


def draw_of(dataset: Dataset) -> Draw:
    return dataset.draw or Draw(real=len(dataset))


def epoch_draws(dataset: Dataset, batch_size: int, *, seed: int | None, epoch: int, steps: int) -> list[Draws]:
    """The images of every step of an epoch of `steps` batches."""
    draw = draw_of(dataset)
    own = draw.real_per_batch(batch_size)
    distinct = -(-draw.real // draw.repeats)
    places = _real_order(dataset, seed, epoch, distinct).repeat_interleave(draw.repeats)[: draw.real]
    copies = torch.arange(len(places)) % draw.repeats
    groups = [_apart(Draws(*each)) for each in zip(places.split(own), copies.split(own), strict=True)][:steps]
    if draw.share:
        others = _endless(dataset, seed, (batch_size - own) * steps, epoch=epoch)
        parts = zip(*(each.split(batch_size - own) for each in others), strict=True)
        groups = [_spread(group, Draws(*part)) for group, part in zip(groups, parts, strict=False)]
    return groups


def _real_order(dataset: Dataset, seed: int | None, epoch: int, count: int) -> Tensor:
    """The first `count` images of an epoch: as stored without a seed; in windows where they are best read together."""
    real = draw_of(dataset).real
    order = (torch.arange(real) if seed is None else randomness.permutation(real, seed, epoch))[:count]
    if isinstance(dataset.store, InOrder):
        by_row = torch.argsort(dataset.rows, stable=True)
        return by_row[order[torch.argsort(order // WINDOW, stable=True)]]
    ends = getattr(dataset.store.images, "ends", None) if isinstance(dataset.store, OnDisk) else None
    if ends is None or seed is None:
        return order
    # row groups in random order, a few of them at a time: an image then costs no more than its share of the reading
    groups = torch.searchsorted(torch.as_tensor(ends), dataset.rows[order], right=True)
    rank = torch.argsort(randomness.permutation(len(ends), seed, epoch, 1))
    return order[torch.argsort(rank[groups] // dataset.store.images.kept, stable=True)]  # type: ignore[union-attr]


def _apart(group: Draws) -> Draws:
    """First copies first, then second ones, and so on."""
    order = torch.argsort(group.copies, stable=True)
    return Draws(group.places[order], group.copies[order])


def _endless(dataset: Dataset, seed: int | None, count: int, *, epoch: int) -> Draws:
    """The `count` synthetic images of an epoch; their copy is the number of the pass over them."""
    first, size = draw_of(dataset).real, len(dataset) - draw_of(dataset).real
    place = torch.arange(epoch * count, (epoch + 1) * count)
    passes = place // size
    chosen = torch.empty_like(place)
    for number in range(int(passes[0]), int(passes[-1]) + 1):
        order = torch.arange(size) if seed is None else randomness.permutation(size, seed, number, _SYNTHETIC)
        chosen[passes == number] = order[place[passes == number] % size]
    return Draws(chosen + first, passes)


def _spread(real: Draws, others: Draws) -> Draws:
    """Both in one batch, evenly mixed, so that every process and every micro-batch gets its part of each."""
    total, count = len(real.places) + len(others.places), len(others.places)
    steps = torch.arange(total + 1) * count // total
    from_others = steps.diff() > 0
    mixed = []
    for one, other in zip(real, others, strict=True):
        out = torch.empty(total, dtype=torch.int64)
        out[from_others], out[~from_others] = other, one
        mixed.append(out)
    return Draws(*mixed)
