"""Colour operations on whole batches (N×3×H×W in [0,1]), each image with its own strength.

All follow torchvision's functional operations: brightness, contrast, saturation, sharpness, hue, solarize,
invert and autocontrast as on float images; posterize and equalize on the 8-bit grid, as on uint8 images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness
from hardtack.data.geometry import per_image


def grey(x: Tensor) -> Tensor:
    """N×1×H×W luma with torchvision's weights."""
    return 0.2989 * x[:, 0:1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:3]


def blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """other + factor·(x − other), clamped: factor 0 gives `other`, 1 the image, above 1 exaggerates."""
    factor = per_image(factor)
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def black(x: Tensor) -> Tensor:
    """What brightness blends with."""
    return torch.zeros_like(x)


def flat_grey(x: Tensor) -> Tensor:
    """What contrast blends with: the image's mean luma."""
    return grey(x).mean(dim=(1, 2, 3), keepdim=True).expand_as(x)


def colourless(x: Tensor) -> Tensor:
    """What saturation blends with."""
    return grey(x).expand_as(x)


def blurred(x: Tensor) -> Tensor:
    """What sharpness blends with: a 3×3 smoothing that leaves the outermost pixels as they are."""
    # shifted sums rather than a convolution: cuDNN may compute those in TF32
    rows, columns = x.shape[-2] - 2, x.shape[-1] - 2
    if rows < 1 or columns < 1:
        return x
    total = 4 * x[..., 1:-1, 1:-1]
    for top in range(3):
        for left in range(3):
            total = total + x[..., top : top + rows, left : left + columns]
    inner = F.pad(total / 13, (1, 1, 1, 1))
    edge = F.pad(torch.zeros_like(total), (1, 1, 1, 1), value=1.0)
    return torch.where(edge > 0, x, inner)


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    """Invert the pixels at or above each image's threshold."""
    return torch.where(x >= per_image(threshold), 1 - x, x)


def add_to_dark(x: Tensor, amount: Tensor) -> Tensor:
    """Add each image's amount to the pixels in the darker half of the range."""
    return torch.where(x < 128 / 255, (x + per_image(amount)).clamp(max=1), x)


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keep each image's highest `bits` (N int64) of 8 bits."""
    step = per_image(2 ** (8 - bits))
    return ((x * 255).round().long() // step * step).to(x.dtype) / 255


def autocontrast(x: Tensor) -> Tensor:
    """Stretch every channel to the full range; a constant channel stays."""
    low, high = x.amin(dim=(-2, -1), keepdim=True), x.amax(dim=(-2, -1), keepdim=True)
    constant = high <= low
    scale = torch.where(constant, 1.0, high - low)
    return ((x - torch.where(constant, 0.0, low)) / scale).clamp(0, 1)


def equalize(x: Tensor) -> Tensor:
    """Flatten every channel's histogram of 256 levels, as Pillow and torchvision do."""
    count, channels, height, width = x.shape
    levels = (x * 255).round().long().view(count * channels, height * width)
    histogram = levels.new_zeros(count * channels, 256).scatter_add_(1, levels, torch.ones_like(levels))
    total = height * width
    # the last occupied level is left out of the step
    last = levels.amax(dim=1, keepdim=True)
    step = (total - histogram.gather(1, last)) // 255
    below = histogram.cumsum(1) - histogram
    table = ((below + step // 2) // step.clamp(min=1)).clamp(0, 255)
    equal = torch.where(step == 0, levels, table.gather(1, levels))
    return equal.view_as(x).to(x.dtype) / 255


def shift_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by `turn` (N, in whole turns, −0.5 … 0.5) through the HSV hexcone."""
    value, minimum = x.amax(dim=1), x.amin(dim=1)
    chroma = value - minimum
    divisor = torch.where(chroma == 0, 1.0, chroma)
    red, green, blue = x.unbind(1)
    from_red, from_green = (green - blue) / divisor, (blue - red) / divisor + 2
    from_blue = (red - green) / divisor + 4
    hue = torch.where(value == red, from_red, torch.where(value == green, from_green, from_blue))
    hue = hue + 6 * turn.view(-1, 1, 1)
    channels = []
    for offset in (5, 3, 1):  # red, green, blue
        k = (hue + offset) % 6
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, dim=1).clamp(0, 1)


def jitter(x: Tensor, keys: Tensor, *, strength: float, hue: float, stream: int) -> Tensor:
    """torchvision's ColorJitter with brightness, contrast and saturation at `strength`, in random order.

    Every image draws its own factors from [max(0, 1−s), 1+s], its own hue turn from [−hue, hue] and its own
    order; an operation is computed for all images in each place of the order and selected.
    """
    kinds = 4 if hue else 3
    low = max(0.0, 1 - strength)
    factors = randomness.uniform(keys, (3,), stream) * (1 + strength - low) + low
    turn = (randomness.uniform(keys, (), stream + 1) * 2 - 1) * hue
    order = randomness.uniform(keys, (kinds,), stream + 2).argsort(dim=1)
    for place in range(kinds):
        kind = order[:, place]
        factor = factors.gather(1, kind.clamp(max=2)[:, None])[:, 0]
        other = torch.where(per_image(kind == 1), flat_grey(x), black(x))
        other = torch.where(per_image(kind == 2), colourless(x), other)
        changed = blend(x, other, factor)
        if hue:
            changed = torch.where(per_image(kind == 3), shift_hue(x, turn), changed)
        x = changed
    return x
