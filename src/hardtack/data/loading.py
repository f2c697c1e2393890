"""Batches in an order that is a function of (seed, epoch, step), on one process or many.

The global batch of step s is given by `sampler`; rank r takes its contiguous share of it. So a run resumed at `start`
sees the batches it would have seen, and two ranks see together what one would see.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from hardtack.base import randomness
from hardtack.base.cores import share_of_cores
from hardtack.base.errors import UserError
from hardtack.data.datasets import Batch, Dataset
from hardtack.data.decode import Cut, as_tensor, fit_array, walk_arrays
from hardtack.data.sampler import COPY, Sample, epoch_samples, sampling_of
from hardtack.data.stores import InOrder, Resident, to_unit


def steps_per_epoch(dataset: Dataset, batch_size: int, drop_last: bool = False) -> int:
    """Global batches in one pass over the data."""
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, found {batch_size}")
    sampling = sampling_of(dataset)
    own = sampling.real_per_batch(batch_size)
    steps = sampling.real // own if drop_last else -(-sampling.real // own)
    if drop_last and steps == 0:
        raise UserError(f"batch_size {batch_size} exceeds the {sampling.real} images of {dataset.name}; lower it")
    return steps


def batches(
    dataset: Dataset,
    batch_size: int,
    *,
    device: torch.device | str,
    shuffle_seed: int | None = None,
    epoch: int = 0,
    start: int = 0,
    drop_last: bool = False,
    rank: int = 0,
    world_size: int = 1,
    workers: int | None = None,
) -> Iterator[Batch]:
    """This rank's share of every global batch of `batch_size` images, from step `start` on.

    A rank whose share of a short last batch is empty gets an empty batch: all ranks take the same steps.
    """
    device = torch.device(device)
    steps = steps_per_epoch(dataset, batch_size, drop_last)
    if not 0 <= rank < world_size:
        raise UserError(f"rank {rank} is not in 0 … {world_size - 1}")
    groups = epoch_samples(dataset, batch_size, seed=shuffle_seed, epoch=epoch, steps=steps)
    shares = [group.part(rank, world_size) for group in groups[start:]]
    if isinstance(dataset.store, Resident):
        return _resident(dataset, shares, device)
    workers = min(dataset.workers, share_of_cores()) if workers is None else workers
    return _streamed(dataset, shares, device, workers, words=(shuffle_seed or 0, epoch))


def _resident(dataset: Dataset, shares: list[Sample], device: torch.device) -> Iterator[Batch]:
    if not shares:
        return
    # the whole order goes over at once; a step then only slices on the device
    lengths = [len(share.positions) for share in shares]
    positions, copies = (torch.cat(each).to(device).split(lengths) for each in zip(*shares, strict=True))
    for position, copy in zip(positions, copies, strict=True):
        batch = dataset.batch(position, device)
        yield batch._replace(index=batch.index + copy * COPY)


class _Decoded:
    """What a worker needs to decode the images of each step."""

    def __init__(self, dataset: Dataset, shares: list[Sample], words: tuple[int, int]) -> None:
        self.rows, self.index, self.shares, self.words = dataset.rows, dataset.index, shares, words
        self.crop = sampling_of(dataset).crop

    def cutter(self, share: Sample) -> Cut | None:
        """Cuts image i of a step as its key says: the key that its augmentation has too."""
        if self.crop is None:
            return None
        keys = randomness.make_keys(self.index[share.positions] + share.copies * COPY, *self.words)
        return self.crop.cutter(keys)


class _Fetches(_Decoded, TorchDataset[object]):
    """Item s is the decoded share of step s; a user's mistake comes back as text, not a traceback."""

    def __init__(self, dataset: Dataset, shares: list[Sample], words: tuple[int, int]) -> None:
        super().__init__(dataset, shares, words)
        assert not isinstance(dataset.store, InOrder)
        self.store = dataset.store

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, step: int) -> Tensor | str:
        share = self.shares[step]
        try:
            return self.store.fetch(self.rows[share.positions], self.cutter(share))
        except UserError as error:
            return str(error)


class _Walk(_Decoded, torch.utils.data.IterableDataset[object]):
    """The shares of a set that can only be read in order: images are kept until the batch that needs them."""

    def __init__(self, dataset: Dataset, shares: list[Sample], words: tuple[int, int]) -> None:
        super().__init__(dataset, shares, words)
        assert isinstance(dataset.store, InOrder)
        self.store = dataset.store

    def __iter__(self) -> Iterator[Tensor | str]:
        wanted: dict[int, list[tuple[int, int]]] = {}  # row → the (step, slot)s that show it
        for step, share in enumerate(self.shares):
            for slot, row in enumerate(self.rows[share.positions].tolist()):
                wanted.setdefault(row, []).append((step, slot))
        cutters = [self.cutter(share) for share in self.shares]
        kept: dict[tuple[int, int], Tensor] = {}
        try:
            walk = walk_arrays(self.store.sequence, set(wanted))
            for step, share in enumerate(self.shares):
                slots = [(step, slot) for slot in range(len(share.positions))]
                while any(slot not in kept for slot in slots):
                    row, array = next(walk)
                    for at in wanted[row]:
                        cut = cutters[at[0]]
                        kept[at] = fit_array(array, self.store.size) if cut is None else cut(at[1], as_tensor(array))
                yield (
                    torch.stack([kept.pop(slot) for slot in slots]) if slots else torch.empty((0, *self.store.shape))
                )
        except UserError as error:
            yield str(error)


def _streamed(
    dataset: Dataset, shares: list[Sample], device: torch.device, workers: int, *, words: tuple[int, int]
) -> Iterator[Batch]:
    walked = isinstance(dataset.store, InOrder)
    source: TorchDataset[object] = (_Walk if walked else _Fetches)(dataset, shares, words)
    loader = DataLoader(
        source,
        batch_size=None,
        num_workers=min(workers, 1) if walked else workers,  # one walker: the order is the stored one
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),  # otherwise the loader draws its seed from the global state
        prefetch_factor=4 if workers else None,
    )
    labels, index = dataset.labels.to(device), dataset.index.to(device)
    for share, pixels in zip(shares, loader, strict=True):
        if isinstance(pixels, str):
            raise UserError(pixels)
        chosen, copies = (each.to(device, non_blocking=True) for each in share)
        number = index[chosen] + copies * COPY
        yield Batch(to_unit(pixels.to(device, non_blocking=True)), labels[chosen], number)
