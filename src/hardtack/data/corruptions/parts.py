"""A batch in parts: on the CPU a part stays in the cache, on a GPU its temporaries stay below about a gigabyte."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def in_parts(
    make: Callable[..., Tensor], x: Tensor, *per_image: Tensor, values_cpu: int = 2**18, values_cuda: int = 2**25
) -> Tensor:
    """`make(x, *per_image)` for N×C×H×W and tensors of length N, made part by part: images do not see each other.

    A part has about so many values of x, for each thread of the CPU and on a GPU.
    """
    values = values_cuda if x.is_cuda else values_cpu * torch.get_num_threads()
    images = max(1, values // max(1, x[:1].numel()))
    if len(x) <= images:
        return make(x, *per_image)
    parts = zip(*(tensor.split(images) for tensor in (x, *per_image)), strict=True)
    return torch.cat([make(*part) for part in parts])
