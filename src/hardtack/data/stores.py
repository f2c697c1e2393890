"""Where a data set's pixels are while it is used: on the device, in memory, on disk, or in a row."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.data.decode import Size, decode_rows, walk_rows
from hardtack.data.source import Images, Sequence


class Resident:
    """All pixels decoded (M×3×H×W, uint8, or float32 in [0,1]), in memory and on each device that asks."""

    streamed = False

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels
        self._copies: dict[torch.device, Tensor] = {}

    @property
    def shape(self) -> tuple[int, int, int]:
        return tuple(self.pixels.shape[1:])  # type: ignore[return-value]

    def on(self, device: torch.device) -> Tensor:
        """The pixels on `device`, moved there the first time only."""
        if device.type == "cpu":
            return self.pixels
        if device not in self._copies:
            self._copies[device] = self.pixels.to(device)
        return self._copies[device]


class OnHost:
    """Decoded pixels that stay in the computer's memory; every batch is copied to the device on its own."""

    streamed = True

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    @property
    def shape(self) -> tuple[int, int, int]:
        return tuple(self.pixels.shape[1:])  # type: ignore[return-value]

    def fetch(self, rows: Tensor) -> Tensor:
        return self.pixels[rows]


class OnDisk:
    """Images decoded when they are asked for, in any order."""

    streamed = True

    def __init__(self, images: Images, size: Size | None, shape: tuple[int, int, int]) -> None:
        self.images, self.size, self.shape = images, size, shape

    def fetch(self, rows: Tensor) -> Tensor:
        return decode_rows(self.images, rows.tolist(), self.size, self.shape)


class InOrder:
    """Images that can only be walked; `fetch` walks from the start and is for looking at a few of them."""

    streamed = True

    def __init__(self, sequence: Sequence, size: Size | None, shape: tuple[int, int, int]) -> None:
        self.sequence, self.size, self.shape = sequence, size, shape

    def fetch(self, rows: Tensor) -> Tensor:
        found = dict(walk_rows(self.sequence, set(rows.tolist()), self.size))
        return torch.stack([found[row] for row in rows.tolist()])


Store = Resident | OnHost | OnDisk | InOrder


def to_unit(pixels: Tensor) -> Tensor:
    """uint8 to float32 in [0,1] by a true division, so that every device computes the same bits."""
    if pixels.is_floating_point():
        return pixels
    # CUDA would multiply by 1/255 for a Python number; a tensor divisor is divided by
    return pixels.to(torch.float32) / torch.full((), 255.0, device=pixels.device)
