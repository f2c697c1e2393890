"""Images that are iterated over many times. They are read once and kept on the device, or in main memory if large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor, Tensor]  # images, labels, indices
ON_DEVICE = 1 << 32  # bytes of images that may be kept on the device


class ImageCache:
    """Batches that are moved to the device during iteration. `size`, in bytes, decides where they are kept."""

    def __init__(self, batches: Iterable[Batch], device: torch.device, size: int) -> None:
        self.device, self.size = device, size
        home = device if size <= ON_DEVICE else torch.device("cpu")
        self._batches = [(x.to(home), y, index) for x, y, index in batches]

    def __iter__(self) -> Iterator[Batch]:
        for x, y, index in self._batches:
            yield x.to(self.device), y, index

    @property
    def lengths(self) -> list[int]:
        """The number of images in each batch."""
        return [len(y) for _, y, _ in self._batches]

    def __len__(self) -> int:
        """The number of images in all batches."""
        return sum(self.lengths)

    def each(self) -> dict[str, np.ndarray]:
        """`index` and `label` of every image."""
        _, labels, numbers = zip(*self._batches, strict=True)
        return {"index": torch.cat(numbers).cpu().numpy(), "label": torch.cat(labels).cpu().numpy()}
