"""Which images every step of an epoch sees: a function of (seed, epoch, step) alone.

By default an epoch is the data set in a random order, cut into batches. The settings of `Sampling` change that:

repeats     Repeated augmentation (Hoffer et al., 2020; timm's RepeatAugSampler): a drawn image appears r times, each
            time with another augmentation. The length of an epoch stays the same, so it shows one r-th of the images.
            Inside a batch all first copies come first, then all second copies: mixup pairs different images, and with
            several processes most copies of an image are on different ones. timm ends an epoch early, at a multiple of
            256.
share       This share of every batch comes from the rows after the first `real` ones (synthetic images), spread evenly
            through the batch. They are shuffled anew on every pass, and a pass continues from epoch to epoch; an epoch
            is one pass over the `real` images.
crop        Random resized crops of the stored photographs, cut where they are decoded.

The `index` of an image differs for each set and copy (`SET` and `COPY` below), so that keys made of it differ too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.data.datasets import Dataset
from hardtack.data.sampling import Sampling
from hardtack.data.stores import InOrder, OnDisk

SET = 1 << 32  # added to the index of images for every set before theirs
COPY = 1 << 40  # added to the index of an image for every copy before this one
WINDOW = 4096  # a set that can only be read in stored order is shuffled inside windows of this many images
_SYNTHETIC = 0x5E7  # separates the random order of synthetic images from that of the others


class Sample(NamedTuple):
    """The images of one step: their `positions` in the data set, and which copy of the image each one is (N int64)."""

    positions: Tensor
    copies: Tensor

    def part(self, rank: int, world_size: int) -> Sample:
        """A process's contiguous share."""
        return Sample(*(each.tensor_split(world_size)[rank] for each in self))


def sampling_of(dataset: Dataset) -> Sampling:
    return dataset.sampling or Sampling(real=len(dataset))


def epoch_samples(dataset: Dataset, batch_size: int, *, seed: int | None, epoch: int, steps: int) -> list[Sample]:
    """The images of every step of an epoch of `steps` batches."""
    sampling = sampling_of(dataset)
    own = sampling.real_per_batch(batch_size)
    distinct = -(-sampling.real // sampling.repeats)
    positions = _real_order(dataset, seed, epoch, distinct).repeat_interleave(sampling.repeats)[: sampling.real]
    copies = torch.arange(len(positions)) % sampling.repeats
    groups = [_by_copy(Sample(*each)) for each in zip(positions.split(own), copies.split(own), strict=True)][:steps]
    if sampling.share:
        others = _endless(dataset, seed, (batch_size - own) * steps, epoch=epoch)
        parts = zip(*(each.split(batch_size - own) for each in others), strict=True)
        groups = [_spread(group, Sample(*part)) for group, part in zip(groups, parts, strict=False)]
    return groups


def _real_order(dataset: Dataset, seed: int | None, epoch: int, count: int) -> Tensor:
    """The first `count` images of an epoch; in stored order without a seed, in windows where the store asks for it."""
    real = sampling_of(dataset).real
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


def _by_copy(group: Sample) -> Sample:
    """All first copies, then all second copies, and so on."""
    order = torch.argsort(group.copies, stable=True)
    return Sample(group.positions[order], group.copies[order])


def _endless(dataset: Dataset, seed: int | None, count: int, *, epoch: int) -> Sample:
    """The `count` synthetic images of an epoch; their copy is the number of the pass over them."""
    first, size = sampling_of(dataset).real, len(dataset) - sampling_of(dataset).real
    position = torch.arange(epoch * count, (epoch + 1) * count)
    passes = position // size
    chosen = torch.empty_like(position)
    for number in range(int(passes[0]), int(passes[-1]) + 1):
        order = torch.arange(size) if seed is None else randomness.permutation(size, seed, number, _SYNTHETIC)
        chosen[passes == number] = order[position[passes == number] % size]
    return Sample(chosen + first, passes)


def _spread(real: Sample, others: Sample) -> Sample:
    """Real and synthetic images in one batch, evenly mixed, so that every micro-batch gets a part of each."""
    total, count = len(real.positions) + len(others.positions), len(others.positions)
    steps = torch.arange(total + 1) * count // total
    from_others = steps.diff() > 0
    mixed = []
    for of_real, of_others in zip(real, others, strict=True):
        out = torch.empty(total, dtype=torch.int64)
        out[from_others], out[~from_others] = of_others, of_real
        mixed.append(out)
    return Sample(*mixed)
