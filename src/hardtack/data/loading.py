"""Batches in an order that is a function of (seed, epoch, step), on one process or many.

The global batch of step s is `order[s·B : (s+1)·B]`; rank r takes its contiguous share of it. So a run
resumed at `start` sees the batches it would have seen, and two ranks see together what one would see.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from hardtack import randomness
from hardtack.data.datasets import Batch, Dataset
from hardtack.data.decode import walk_rows
from hardtack.data.stores import InOrder, Resident, to_unit
from hardtack.errors import UserError

WINDOW = 4096  # images among which a set that can only be walked is shuffled


def steps_per_epoch(dataset: Dataset, batch_size: int, drop_last: bool = False) -> int:
    """Global batches in one pass over the data."""
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, found {batch_size}")
    steps = len(dataset) // batch_size if drop_last else -(-len(dataset) // batch_size)
    if drop_last and steps == 0:
        raise UserError(f"batch_size {batch_size} exceeds the {len(dataset)} images of {dataset.name}; make it smaller")
    return steps


def epoch_order(dataset: Dataset, shuffle_seed: int | None, epoch: int) -> Tensor:
    """The order (N int64) of one epoch: as stored without a seed; inside windows where the set is walked."""
    count = len(dataset)
    if shuffle_seed is None:
        order = torch.arange(count)
    else:
        order = randomness.permutation(count, shuffle_seed, epoch)
    if isinstance(dataset.store, InOrder):
        by_row = torch.argsort(dataset.rows, stable=True)
        order = by_row[order[torch.argsort(order // WINDOW, stable=True)]]
    return order


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
    order = epoch_order(dataset, shuffle_seed, epoch)
    groups = (order[step * batch_size : (step + 1) * batch_size] for step in range(start, steps))
    shares = [group.tensor_split(world_size)[rank] for group in groups]
    if isinstance(dataset.store, Resident):
        return _resident(dataset, shares, device)
    workers = dataset.workers if workers is None else workers
    return _streamed(dataset, shares, device, workers)


def _resident(dataset: Dataset, shares: list[Tensor], device: torch.device) -> Iterator[Batch]:
    if not shares:
        return
    # the whole order goes over at once; a step then only slices on the device
    whole = torch.cat(shares).to(device)
    for share in whole.split([len(share) for share in shares]):
        yield dataset.batch(share, device)


class _Fetches(TorchDataset[object]):
    """Item s is the decoded share of step s; a user's mistake comes back as text, not a traceback."""

    def __init__(self, dataset: Dataset, shares: list[Tensor]) -> None:
        assert not isinstance(dataset.store, Resident)
        self.store, self.rows, self.shares = dataset.store, dataset.rows, shares

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, step: int) -> Tensor | str:
        try:
            return self.store.fetch(self.rows[self.shares[step]])
        except UserError as error:
            return str(error)


class _Walk(torch.utils.data.IterableDataset[object]):
    """The shares of a set that can only be walked: images are kept until the batch that needs them."""

    def __init__(self, dataset: Dataset, shares: list[Tensor]) -> None:
        assert isinstance(dataset.store, InOrder)
        self.store, self.rows, self.shares = dataset.store, dataset.rows, shares

    def __iter__(self) -> Iterator[Tensor | str]:
        wanted = [self.rows[share].tolist() for share in self.shares]
        kept: dict[int, Tensor] = {}
        try:
            walk = walk_rows(self.store.sequence, {row for rows in wanted for row in rows}, self.store.size)
            for rows in wanted:
                missing = set(rows) - kept.keys()
                while missing:
                    row, kept_image = next(walk)
                    kept[row] = kept_image
                    missing.discard(row)
                yield (torch.stack([kept.pop(row) for row in rows]) if rows else torch.empty((0, *self.store.shape)))
        except UserError as error:
            yield str(error)


def _streamed(dataset: Dataset, shares: list[Tensor], device: torch.device, workers: int) -> Iterator[Batch]:
    walked = isinstance(dataset.store, InOrder)
    source: TorchDataset[object] = _Walk(dataset, shares) if walked else _Fetches(dataset, shares)
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
        chosen = share.to(device)
        yield Batch(to_unit(pixels.to(device, non_blocking=True)), labels[chosen], index[chosen])
