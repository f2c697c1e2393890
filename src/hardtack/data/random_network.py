"""`random_network:NAME`: a copy of another data set, each image distorted by a random convolutional network.

A stand-in for DeepAugment (Hendrycks et al., 2021), and not it: DeepAugment damages the weights of two trained
image-to-image networks, which have to be downloaded. Here the network is made up: it starts as the identity (an
isometry into 16 channels and back), gets residual blocks of random 3×3 filters between the two, and is then damaged
at random in three ways (filters dropped, negated, rescaled, shuffled, blurred, made noisy). What comes out is given the
mean and contrast of the image, somewhat off, and blended with it. Twenty images in stored order share a network, as
DeepAugment's do on average; the distortion of an image is a function of its place and of the number before an @
(`random_network:1@cifar10` is another copy than `random_network:cifar10`).

Made to be added: `data.extra: [{name: "random_network:cifar10", copy: true}]`. Images are distorted one by one where
they are decoded, at their stored size.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data.decode import as_tensor
from hardtack.data.source import Images, Sequence, Splits, Stored
from hardtack.data.stores import to_unit

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

SHARED = 20  # images in a row that go through the same network
CHANNELS, BLOCKS, DAMAGES = 16, 2, 3
_WORD = 0xD157
_BENDS = (F.relu, F.gelu, torch.tanh, torch.sin, torch.abs)
_KINDS = ("dropped", "negated", "rescaled", "shuffled", "blurred", "noisy")


class Network(NamedTuple):
    """Filters (out×in×3×3) of the way in, of two convolutions per block, of the way out; and how they are used."""

    filters: tuple[Tensor, ...]
    bends: tuple[int, ...]
    gain: float
    contrast: float
    brightness: float
    blend: float


@functools.lru_cache(maxsize=8)
def make_network(number: int, seed: int = 0) -> Network:
    """The damaged network with this number; a pure function."""
    key = randomness.make_keys(torch.tensor([number]), seed, _WORD)
    inward = torch.linalg.qr(randomness.normal(key, (CHANNELS, 3), 0)[0]).Q
    ends = [F.pad(matrix[:, :, None, None], (1, 1, 1, 1)) for matrix in (inward, inward.T)]
    inner = randomness.normal(key, (2 * BLOCKS, CHANNELS, CHANNELS, 3, 3), 1)[0] / (3 * CHANNELS**0.5)
    filters = [ends[0], *inner, ends[1]]
    for damage in range(DAMAGES):
        draws = randomness.uniform(key, (2,), 16 + 16 * damage)[0].tolist()
        layer, kind = int(draws[0] * len(filters)), _KINDS[int(draws[1] * len(_KINDS))]
        filters[layer] = damaged(filters[layer], kind, key, stream=17 + 16 * damage)
    bends = randomness.integers(key, len(_BENDS), (BLOCKS,), 2)[0].tolist()
    gain, contrast, brightness, blend = randomness.uniform(key, (4,), 3)[0].tolist()
    return Network(
        tuple(filters), tuple(bends), gain=0.5 + 1.5 * gain, contrast=0.7 + 0.6 * contrast,
        brightness=0.2 * brightness - 0.1, blend=0.6 + 0.4 * blend,
    )  # fmt: skip


def damaged(filters: Tensor, kind: str, key: Tensor, *, stream: int) -> Tensor:
    """`filters` (out×in×3×3) with some of them dropped, negated, …; about a quarter where only some are."""
    count = len(filters)
    hit = (randomness.uniform(key, (count,), stream)[0] < 0.25).view(-1, 1, 1, 1)
    noise = randomness.normal(key, tuple(filters.shape), stream + 1)[0]
    if kind == "dropped":
        return torch.where(hit, 0.0, filters)
    if kind == "negated":
        return torch.where(hit, -filters, filters)
    if kind == "rescaled":
        return filters * torch.exp(0.5 * noise[:, :1, :1, :1])
    if kind == "shuffled":
        order = torch.argsort(randomness.uniform(key, (count,), stream + 2)[0])
        return torch.where(hit, filters[order], filters)
    if kind == "blurred":
        spread = randomness.uniform(key, (count, 1, 3, 3), stream + 3)[0]
        return filters.sum(dim=(2, 3), keepdim=True) * spread / spread.sum(dim=(2, 3), keepdim=True)
    if kind == "noisy":
        return filters + noise * filters.square().mean().sqrt() * 0.5
    raise ValueError(kind)


def run(network: Network, x: Tensor) -> Tensor:
    """What the network makes of 1×3×H×W in [0,1], with the image's mean and contrast and a part of the image itself."""

    def convolve(values: Tensor, number: int) -> Tensor:
        return F.conv2d(F.pad(values, (1, 1, 1, 1), mode="replicate"), network.filters[number])

    hidden = convolve(x - 0.5, 0)
    for block, bend in enumerate(network.bends):
        hidden = hidden + network.gain * convolve(_BENDS[bend](convolve(hidden, 1 + 2 * block)), 2 + 2 * block)
    out = convolve(hidden, -1)
    spread, mean = torch.std_mean(out, dim=(2, 3), keepdim=True, correction=0)
    wanted, centre = torch.std_mean(x, dim=(2, 3), keepdim=True, correction=0)
    out = (out - mean) / (spread + 1e-3) * wanted * network.contrast + centre + network.brightness
    return torch.lerp(x, out, network.blend).clamp(0, 1)


@torch.no_grad()
def distort(pixels: np.ndarray, index: int, seed: int = 0) -> np.ndarray:
    """Image `index` (H×W×3 uint8) through its network."""
    image = to_unit(as_tensor(pixels))[None]
    made = run(make_network(index // SHARED, seed), image)[0]
    return (made * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()


class DistortedImages:
    """Images of another set, distorted when they are read."""

    def __init__(self, images: Images | Tensor, name: str, seed: int) -> None:
        self.images, self.name, self.seed = images, name, seed

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> np.ndarray:
        if isinstance(self.images, Tensor):
            stored = (to_unit(self.images[index]) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
        else:
            stored = self.images.read(index)
        return distort(stored, index, self.seed)

    def where(self, index: int) -> str:
        return f"image {index} of {self.name}" if isinstance(self.images, Tensor) else self.images.where(index)


class DistortedSequence:
    """Images that can only be walked, distorted on the way."""

    def __init__(self, sequence: Sequence, seed: int) -> None:
        self.sequence, self.seed = sequence, seed

    def __len__(self) -> int:
        return len(self.sequence)

    def walk(self) -> Iterator[np.ndarray]:
        for index, array in enumerate(self.sequence.walk()):
            yield distort(array, index, self.seed)


@datasets.register(
    "random_network", path="NAME", help="random_network:NAME: another set, distorted by random networks; for data.extra"
)
def read_random_network(config: DataConfig, path: str) -> Splits:
    from hardtack.data.datasets import parse_name

    number, at, name = path.rpartition("@")
    if at and not number.isdigit():
        raise UserError(f"random_network:{path}: '{number}' before the @ is not a number")
    word, inner = parse_name(name)
    splits: Splits = datasets.get(word).make(dataclasses.replace(config, name=name), inner)
    seed = int(number or 0)

    def opener(split: str) -> Stored:
        stored = splits[split]()
        if isinstance(stored.images, Sequence):
            images: DistortedSequence | DistortedImages = DistortedSequence(stored.images, seed)
        else:
            images = DistortedImages(stored.images, name, seed)
        note = "; ".join(filter(None, [stored.note, f"distorted by random networks (number {seed})"]))
        return dataclasses.replace(stored, images=images, note=note, source="own")

    return {split: (lambda split=split: opener(split)) for split in splits}  # type: ignore[misc]
