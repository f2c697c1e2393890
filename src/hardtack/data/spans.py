"""What is evaluated, cut into numbered chunks: a data set, or a pair (x, y) of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.data import Dataset, batches
from hardtack.data.original import Original
from hardtack.data.stores import InOrder


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


def shape_of(data: Any) -> tuple[int, ...]:
    """Of an image, C×H×W; nothing is decoded for it."""
    return tuple(data[0].shape[1:] if isinstance(data, tuple) else data.image_shape)


def original_of(data: Any) -> Original | None:
    """The stored images of a data set that is resized; None for tensors."""
    return None if isinstance(data, tuple) else data.original


def head(data: Any, device: torch.device, first: int = 8) -> tuple[Tensor, Tensor]:
    """The first few images, on which the model's behaviour is checked."""
    if count(data) == 0:
        raise UserError("there are no images to evaluate")
    if isinstance(data, tuple):
        return data[0][:first].to(device), data[1][:first].to(device)
    batch = next(batches(data, min(first, len(data)), device=device, workers=0))
    return batch.x, batch.y


def at_positions(data: Any, device: torch.device, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Images and labels at these positions (ascending), and the positions themselves.

    A set that can only be read from its beginning gives its first images instead: their positions are returned.
    """
    if isinstance(data, tuple):
        return data[0][positions].to(device), data[1][positions].to(device), positions
    if isinstance(data.store, InOrder):
        positions = torch.arange(min(len(positions), len(data)))
    batch = data.batch(positions, device)
    return batch.x, batch.y, positions


def chunks(
    data: Any, device: torch.device, spans: Sequence[tuple[int, int]], *, rows: Tensor | None = None
) -> Iterator[tuple[tuple[int, int], tuple[Tensor, Tensor, Tensor]]]:
    """The images of each span (first row, one past the last), on the device; a stream is read once, in order.

    With `rows` (ascending positions in the data) the spans count these.
    """
    rows = torch.arange(count(data)) if rows is None else rows
    if isinstance(data, tuple):
        x, y = data
        for start, stop in spans:
            part = rows[start:stop]
            yield (start, stop), (x[part].to(device), y[part].to(device), part.to(device))
        return
    if not spans:
        return
    chosen = torch.cat([rows[start:stop] for start, stop in spans])
    pieces = batches(data.subset(chosen), min(_PIECE, len(chosen)), device=device)
    held = next(pieces)
    for start, stop in spans:
        parts, have = [held], len(held.x)
        while have < stop - start:
            parts.append(next(pieces))
            have += len(parts[-1].x)
        held = type(held)(*(torch.cat(column) for column in zip(*parts, strict=True)))
        first = [value[: stop - start] for value in held]
        yield (start, stop), (first[0], first[1], first[2])
        held = type(held)(*(value[stop - start :] for value in held))


_PIECE = 256  # images decoded together
