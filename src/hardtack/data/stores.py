"""Where a data set's pixels are while it is used: on the device, in memory, on disk, in a row, or in several places.

`fetch(rows, cut)` gives N×3×H×W. With `cut` (which image of the batch, its stored pixels 3×H×W) → 3×side×side, images
are cut as it says, in place of being brought to one size the same way every time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.data.decode import Cut, Size, decode_rows, fit, walk_rows
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

    def fetch(self, rows: Tensor, cut: Cut | None = None) -> Tensor:
        return _cut_out(self.pixels[rows], cut)


class OnHost:
    """Decoded pixels that stay in the computer's memory; every batch is copied to the device on its own.

    `size` brings them to one size only when they are fetched without a `cut`.
    """

    streamed = True

    def __init__(self, pixels: Tensor, size: Size | None = None) -> None:
        self.pixels, self.size = pixels, size

    @property
    def shape(self) -> tuple[int, int, int]:
        return tuple(fit(self.pixels[:1], self.size).shape[1:])  # type: ignore[return-value]

    def fetch(self, rows: Tensor, cut: Cut | None = None) -> Tensor:
        return _cut_out(self.pixels[rows], cut) if cut is not None else fit(self.pixels[rows], self.size)


def _cut_out(images: Tensor, cut: Cut | None) -> Tensor:
    return images if cut is None else torch.stack([cut(slot, image) for slot, image in enumerate(images)])


class OnDisk:
    """Images decoded when they are asked for, in any order."""

    streamed = True

    def __init__(self, images: Images, size: Size | None, shape: tuple[int, int, int]) -> None:
        self.images, self.size, self.shape = images, size, shape

    def fetch(self, rows: Tensor, cut: Cut | None = None) -> Tensor:
        return decode_rows(self.images, rows.tolist(), self.size, self.shape, cut)


class InOrder:
    """Images that can only be read in order; `fetch` reads from the start and is meant for a few images."""

    streamed = True

    def __init__(self, sequence: Sequence, size: Size | None, shape: tuple[int, int, int]) -> None:
        self.sequence, self.size, self.shape = sequence, size, shape

    def fetch(self, rows: Tensor) -> Tensor:
        pixels = dict(walk_rows(self.sequence, set(rows.tolist()), self.size))
        return torch.stack([pixels[row] for row in rows.tolist()])


class Joined:
    """Several stores one after the other, at least one of them streamed."""

    streamed = True

    def __init__(self, parts: list[Resident | OnHost | OnDisk], lengths: list[int]) -> None:
        self.parts, self.shape = parts, parts[0].shape
        self.ends = torch.tensor(lengths).cumsum(0)

    def fetch(self, rows: Tensor, cut: Cut | None = None) -> Tensor:
        which = torch.searchsorted(self.ends, rows, right=True)
        out: dict[int, Tensor] = {}
        for number, part in enumerate(self.parts):
            slots = (which == number).nonzero().flatten()
            if len(slots) == 0:
                continue
            inner = rows[slots] - (self.ends[number - 1] if number else 0)
            moved = None if cut is None else (lambda slot, image, slots=slots: cut(int(slots[slot]), image))
            out |= dict(zip(slots.tolist(), part.fetch(inner, moved), strict=True))
        images = [out[slot] for slot in range(len(rows))]
        if any(image.is_floating_point() for image in images):
            images = [to_unit(image) for image in images]
        return torch.stack(images) if images else torch.empty((0, *self.shape), dtype=torch.uint8)


Store = Resident | OnHost | OnDisk | InOrder | Joined


def join(stores: list[Store], rows: list[Tensor], names: list[str]) -> tuple[Store, Tensor]:
    """One store of them all, and where in it the `rows` of each lie."""
    for store, name in zip(stores, names, strict=True):
        if isinstance(store, InOrder | Joined):
            mend = "keep it in memory (data.stream=false), or store it as parquet or a folder"
            raise UserError(f"{name} can only be read in stored order and cannot be mixed with other sets; {mend}")
        if store.shape != stores[0].shape:
            sizes = ("×".join(map(str, each.shape[1:])) for each in (store, stores[0]))
            raise UserError("{} is {} but the training split is {}; set data.image_size".format(name, *sizes))
    parts: list[Resident | OnHost | OnDisk] = list(stores)  # type: ignore[arg-type]
    if all(isinstance(part, Resident) for part in parts):
        pixels = [part.pixels[where] for part, where in zip(parts, rows, strict=True)]  # type: ignore[union-attr]
        if len({each.dtype for each in pixels}) > 1:
            pixels = [to_unit(each) for each in pixels]
        return Resident(torch.cat(pixels)), torch.arange(sum(map(len, rows)))
    lengths = [int(where.max()) + 1 if len(where) else 0 for where in rows]
    starts = torch.tensor([0, *lengths]).cumsum(0)
    return Joined(parts, lengths), torch.cat([where + start for where, start in zip(rows, starts, strict=False)])


def to_unit(pixels: Tensor) -> Tensor:
    """uint8 to float32 in [0,1] by a true division, so that every device computes the same bits."""
    if pixels.is_floating_point():
        return pixels
    # CUDA would multiply by 1/255 for a Python number; a tensor divisor is divided by
    return pixels.to(torch.float32).div_(torch.full((), 255.0, device=pixels.device))
