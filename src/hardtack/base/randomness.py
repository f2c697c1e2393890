"""Random numbers that belong to an image, not to a batch.

Every draw is a pure function of (key of the image, stream, position): the same image sees the same noise
whatever the batch size, the order, the shard or the point of resumption, on the CPU and on the GPU. The
generator is counter-based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), with the
64-bit finaliser of SplitMix as its mixing function. No global state is read or written, but by `fresh_word`, for
callers outside of evaluations and trainings.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift(z: Tensor, bits: int) -> Tensor:
    # int64 shifts are arithmetic; mask the copies of the sign bit away
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def fold(keys: Tensor, *words: int | Tensor) -> Tensor:
    """New keys from old ones and words: `fold(index, seed, epoch)` (N int64, words int or int64 tensors)."""
    keys = keys.to(torch.int64)
    for word in words:
        keys = _mix(keys * _GOLDEN + word + 1)
    return keys


def make_keys(index: Tensor, *words: int | Tensor) -> Tensor:
    """Keys of images, from their index in the data set and any words such as seed and epoch."""
    return fold(index, *words, 0)


def fresh_word() -> int:
    """A word for `fold` that differs from call to call: one draw from torch's generator on the CPU."""
    return int(torch.randint(2**32, ()))


def fresh_keys(count: int, device: torch.device) -> Tensor:
    """Keys of images that nobody has named, from one draw of torch's generator."""
    return fold(torch.arange(count, device=device), fresh_word())


def bits(keys: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """N×shape int64 of independent bits, one row per key."""
    count = math.prod(shape)
    counter = torch.arange(1, count + 1, device=keys.device, dtype=torch.int64)
    # the sum is multiplied, not the counter: Inductor writes arange times a 64-bit constant as 32-bit code
    return _mix((fold(keys, stream)[:, None] + counter[None]) * _GOLDEN).view(len(keys), *shape)


def uniform(keys: Tensor, shape: tuple[int, ...] = (), stream: int = 0) -> Tensor:
    """N×shape float32, uniform on [0, 1) with 24 random bits each."""
    return _shift(bits(keys, shape, stream), 40).to(torch.float32) * 2.0**-24


def normal(keys: Tensor, shape: tuple[int, ...] = (), stream: int = 0) -> Tensor:
    """N×shape float32, standard normal by Box and Muller's transform."""
    word = bits(keys, shape, stream)
    radius = (_shift(word, 40).to(torch.float32) + 0.5) * 2.0**-24
    angle = (word & 0xFFFFFF).to(torch.float32) * (2 * math.pi * 2.0**-24)
    return torch.sqrt(-2 * torch.log(radius)) * torch.cos(angle)


def normal_pairs(keys: Tensor, shape: tuple[int, ...] = (), stream: int = 0) -> Tensor:
    """N×shape float32, standard normal: both numbers of Box and Muller's pairs, in half the time of `normal`.

    40 bits decide the radius: the tails end at 7.5 standard deviations instead of 5.9.
    """
    count = math.prod(shape)
    word = bits(keys, (-(-count // 2),), stream)
    radius = (_shift(word, 24).to(torch.float32) + 0.5) * 2.0**-40
    radius = torch.sqrt(-2 * torch.log(radius))
    angle = (word & 0xFFFFFF).to(torch.float32) * (2 * math.pi * 2.0**-24)
    both = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
    return both[:, :count].reshape(len(keys), *shape)


def integers(keys: Tensor, high: int | Tensor, shape: tuple[int, ...] = (), stream: int = 0) -> Tensor:
    """N×shape int64 on 0 … high−1; `high` may differ by image (a tensor that broadcasts)."""
    return (uniform(keys, shape, stream) * high).to(torch.int64)


def permutation(count: int, *words: int) -> Tensor:
    """The numbers 0 … count−1 in an order that is a function of `words` alone (CPU, int64)."""
    return torch.argsort(bits(make_keys(torch.zeros(1, dtype=torch.int64), *words), (count,))[0], stable=True)
