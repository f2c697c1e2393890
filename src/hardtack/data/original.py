"""The images of a resized split as they are stored, so that they can be corrupted before they are resized.

CIFAR-10-C corrupts images of 32 pixels. A model of 224 pixels is shown these corrupted images enlarged, exactly as the
clean ones are. This needs stored images of one size; photographs of many sizes are corrupted after they were resized,
as ImageNet-C's were.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.data.decode import Size, decode_rows, describe, fit, open_image
from hardtack.data.source import EncodedImages, Images, Sequence
from hardtack.data.stores import to_unit

Shape = tuple[int, int]
"""Height and width."""


def first_shape(images: Tensor | Images | Sequence) -> Shape:
    """Height and width of the first image that can be read."""
    return next(_shapes(images))


class Original(NamedTuple):
    """What a split was resized from: all stored images (image i has the index i), the size, and the share `crop`."""

    images: Tensor | Images | Sequence
    size: Size
    crop: float


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Stored images that all have one `shape`, and the way they are resized."""

    images: Tensor | Images
    size: Size
    shape: Shape
    _last: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> dict[str, str]:
        """What results say about images that are corrupted at this size and resized afterwards."""
        height, width = self.shape
        return {"corrupted_at": f"{height}×{width}, as stored", "resized": describe(self.size, (3, height, width))}

    def fetch(self, index: Tensor) -> Tensor:
        """The images with these numbers as they are stored, N×3×H×W in [0,1]; all views ask for the same batch."""
        if "index" not in self._last or not torch.equal(self._last["index"], index):
            self._last.update(index=index, images=to_unit(self._read(index.cpu()).to(index.device)))
        return self._last["images"]

    def _read(self, rows: Tensor) -> Tensor:
        if isinstance(self.images, Tensor):
            return self.images[rows]
        return decode_rows(self.images, rows.tolist(), None, (3, *self.shape))

    def resize(self, x: Tensor) -> Tensor:
        """Images of this size, N×3×H×W in steps of 1/255, resized as the clean ones are: on the CPU, and as bytes."""
        pixels = x.cpu()
        if not (isinstance(self.images, Tensor) and self.images.is_floating_point()):
            pixels = (pixels * 255).round().to(torch.uint8)
        return to_unit(fit(pixels, self.size)).to(x.device)


def enlarged_from(original: Original | None) -> StoredImages | None:
    """The stored images if they have one size and are enlarged; None for photographs, which are made smaller."""
    if original is None or min(first_shape(original.images)) >= original.size.shorter:
        return None
    return _of_one_size(original)


def stored_at(original: Original | None, shape: Shape) -> StoredImages | None:
    """The stored images if all of them have this shape and are resized."""
    return None if original is None or first_shape(original.images) != shape else _of_one_size(original)


def _of_one_size(original: Original) -> StoredImages | None:
    images, size = original.images, original.size
    shape = first_shape(images)
    if size.is_that_of(*shape):
        return None
    if isinstance(images, Sequence):  # read once and kept: it cannot be read in any order
        arrays: list[np.ndarray] = []
        for array in images.walk():
            if array.shape[:2] != shape:
                return None
            arrays.append(array)
        images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)
    elif any(other != shape for other in _shapes(images)):
        return None
    return StoredImages(images, size, shape)


def _shapes(images: Tensor | Images | Sequence) -> Iterator[Shape]:
    """The size of every stored image, from its header where its bytes can be asked for."""
    if isinstance(images, Tensor):
        yield images.shape[2], images.shape[3]
    elif isinstance(images, Sequence):
        yield from ((array.shape[0], array.shape[1]) for array in images.walk())
    else:
        for row in range(len(images)):
            try:
                yield _header(images, row)
            except UserError:  # a damaged image stops whoever uses it
                continue


def _header(images: Images, row: int) -> Shape:
    if not isinstance(images, EncodedImages):
        height, width = images.read(row).shape[:2]
        return height, width
    try:
        with open_image(io.BytesIO(images.encoded(row)), images.where(row)) as image:
            return image.size[1], image.size[0]
    except UserError:
        raise
    except Exception as error:  # Pillow raises whatever its decoders met
        raise UserError(f"cannot read the image {images.where(row)}: {error}") from None
