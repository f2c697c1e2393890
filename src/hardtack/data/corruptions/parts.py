"""A batch in parts: on the CPU a part stays in the cache, on a GPU its temporaries stay below about a gigabyte."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_VALUES_CPU, _VALUES_CUDA = 2**18, 2**26


def in_parts(make: Callable[..., Tensor], x: Tensor, *per_image: Tensor) -> Tensor:
    """`make(x, *per_image)` for N×C×H×W and tensors of length N, made part by part: images do not see each other."""
    values = _VALUES_CUDA if x.is_cuda else _VALUES_CPU
    images = max(1, values // max(1, x[:1].numel()))
    if len(x) <= images:
        return make(x, *per_image)
    parts = zip(*(tensor.split(images) for tensor in (x, *per_image)), strict=True)
    return torch.cat([make(*part) for part in parts])
