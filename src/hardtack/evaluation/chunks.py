"""What is evaluated, cut into numbered chunks: a data set, or a pair (x, y) of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from hardtack.data import Dataset, batches
from hardtack.errors import UserError


def check_pair(data: Any) -> None:
    """Tensors given as data come in pairs of one length, or whole rows would be lost without a word."""
    if isinstance(data, Dataset):
        return
    if not isinstance(data, tuple) or len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        raise UserError(f"data must be a data set or a pair (x, y) of tensors, found {type(data).__name__}")
    if len(data[0]) != len(data[1]):
        raise UserError(f"there must be one label for each image, found {len(data[0])} and {len(data[1])}")


def count(data: Any) -> int:
    return len(data[1] if isinstance(data, tuple) else data)


def head(data: Any, device: torch.device, first: int = 8) -> tuple[Tensor, Tensor]:
    """The first few images, on which the model's manners are checked."""
    if count(data) == 0:
        raise UserError("there are no images to evaluate")
    if isinstance(data, tuple):
        return data[0][:first].to(device), data[1][:first].to(device)
    batch = next(batches(data, min(first, len(data)), device=device, workers=0))
    return batch.x, batch.y


def chunks(
    data: Any, size: int, device: torch.device, wanted: list[int]
) -> Iterator[tuple[int, tuple[Tensor, Tensor, Tensor]]]:
    """The wanted chunks; a streamed set starts reading at the first of them."""
    if isinstance(data, tuple):
        x, y = data
        for number in wanted:
            rows = torch.arange(number * size, min((number + 1) * size, len(x)))
            yield number, (x[rows].to(device), y[rows].to(device), rows.to(device))
    elif wanted:
        for number, batch in enumerate(batches(data, size, device=device, start=wanted[0]), start=wanted[0]):
            if number in wanted:
                yield number, (batch.x, batch.y, batch.index)
