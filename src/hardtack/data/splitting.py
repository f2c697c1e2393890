"""Cutting a validation set out of training data, and short versions of a split for quick runs."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.errors import UserError


def stratified_cut(labels: Tensor, share: float, seed: int, classes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """(rest, held): rows of `labels` (N int64), `share` of every class held out, both in stored order.

    The choice is a function of the labels, the share and the seed alone. Each class that occurs gives at
    least one image and keeps at least one.
    """
    shuffled = randomness.permutation(len(labels), seed)
    # a stable sort by class after the shuffle: each class becomes one run in random order
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    counts = torch.bincount(labels, minlength=len(classes))
    small = ((counts > 0) & (counts < 2)).nonzero().flatten().tolist()
    if small:
        raise UserError(
            f"class '{classes[small[0]]}' has a single image, too few to cut a split from; "
            "add images, or set data.validation=0 (training) or data.test=1 (measuring only)"
        )
    take = (counts * share).round().long().clamp(min=1).minimum(counts - 1)
    rank = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    held = rank < take[labels[by_class]]
    return by_class[~held].sort().values, by_class[held].sort().values


def first_rows(labels: Tensor, count: int) -> Tensor:
    """The first `count` rows as stored; evenly from every class where the set is stored class by class.

    Official test sets are stored mixed, and their first 1000 images are what others report on. Folders are
    stored class by class, where the first 1000 would be all of one kind.
    """
    rows = torch.arange(len(labels))
    stored_by_class = bool((labels.diff() >= 0).all()) and bool(labels[0] != labels[-1])
    if not stored_by_class:
        return rows[:count]
    _, place, counts = labels.unique_consecutive(return_inverse=True, return_counts=True)
    rank = rows - (counts.cumsum(0) - counts)[place]
    return torch.argsort(rank, stable=True)[:count].sort().values
