"""Images that are gone through again and again: read once, on the device while they are few, else in main memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor, Tensor]  # images, labels, numbers
ON_DEVICE = 1 << 32  # bytes of images that may lie on the device


class ImageCache:
    """Batches that come to the device as they are walked over; `size` (bytes in all) decides where they lie."""

    def __init__(self, batches: Iterable[Batch], device: torch.device, size: int) -> None:
        self.device, self.size = device, size
        home = device if size <= ON_DEVICE else torch.device("cpu")
        self._batches = [(x.to(home), y, index) for x, y, index in batches]

    def __iter__(self) -> Iterator[Batch]:
        for x, y, index in self._batches:
            yield x.to(self.device), y, index

    @property
    def lengths(self) -> list[int]:
        """Of the batches."""
        return [len(y) for _, y, _ in self._batches]

    def __len__(self) -> int:
        """Of images."""
        return sum(self.lengths)

    def each(self) -> dict[str, np.ndarray]:
        """`index` and `label` of every image."""
        _, labels, numbers = zip(*self._batches, strict=True)
        return {"index": torch.cat(numbers).cpu().numpy(), "label": torch.cat(labels).cpu().numpy()}
