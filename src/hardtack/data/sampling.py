"""How training samples a data set: copies of images, a share of synthetic images, random crops."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from hardtack.base.errors import UserError
from hardtack.data import geometry
from hardtack.data.decode import Cut


@dataclass(frozen=True, kw_only=True)
class RandomCrop:
    """A random box of each image (area as a share of the image, width/height), resized to side×side, antialiased."""

    side: int
    area: tuple[float, float]
    ratio: tuple[float, float]
    interpolation: str
    stream: int

    def cutter(self, keys: Tensor) -> Cut:
        """A function that cuts image i (3×H×W uint8, or float in [0,1]) of a batch by its key."""
        candidates, offsets = (part.tolist() for part in geometry.box_draws(keys, self.stream))
        return lambda slot, image: self._cut(image, candidates[slot], offsets[slot])

    def _cut(self, image: Tensor, candidates: list[list[float]], offset: list[float]) -> Tensor:
        size = (image.shape[-2], image.shape[-1])
        # plain numbers: for a single image, tensors would take half as long as decoding it
        top, left, tall, wide = geometry.crop_box(candidates, offset, size, area=self.area, ratio=self.ratio)
        piece = image[:, top : top + tall, left : left + wide][None]
        piece = F.interpolate(
            piece, size=(self.side, self.side), mode=self.interpolation, antialias=True, align_corners=False
        )[0]
        return piece.clamp(0, 1) if piece.is_floating_point() else piece


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """`real`: the first images of the data set, one pass over which is an epoch; the images after them are synthetic.

    repeats  copies of each drawn image in its batch
    share    of every batch that is synthetic
    crop     the random crop that is cut where images are decoded
    """

    real: int
    repeats: int = 1
    share: float = 0.0
    crop: RandomCrop | None = None

    def real_per_batch(self, batch_size: int) -> int:
        count = batch_size - round(batch_size * self.share)
        if not 0 < count <= batch_size or (self.share and count == batch_size):
            raise UserError(
                f"a batch of {batch_size} cannot hold a share of {self.share:g} synthetic images and real images"
            )
        return count
