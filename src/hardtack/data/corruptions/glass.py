"""Glass blur: pixels take the colours of near ones, one after the other, between two smoothings.

The published loop goes through the pixels from the bottom right to the top left and gives each the colour that a
neighbour has at that moment. (It means to swap the two; but a tuple swap of NumPy views copies.) The loop is
sequential, its result is not: a neighbour that the loop has not reached yet gives its old colour, and one that it has
passed gives what it took itself, from a neighbour of its own. So each pixel's colour comes from the end of a chain of
pixels, and all chains are followed to their ends at once, by doubling.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.filters import cut_to_levels, gaussian_filter, to_fractions, to_levels
from hardtack.data.corruptions.parts import in_parts

# (sigma, largest shift, iterations) by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, int, int], ...]] = {
    "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
}
# A chain goes on with a chance of 27/64 at most, so one in 10²⁴ is longer than 2⁶ links.
_DOUBLINGS = 6


@corruptions.register("glass_blur", stream=5, help="neighbouring pixels swapped, as behind frosted glass")
def glass_blur(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Shuffle near pixels between two smoothings, as frosted glass does.

    The published function: the same 8 bits for the same shifts. Quirks included: colours are copied where a swap was
    meant, shifts are −d … d−1, and the outermost pixels (d+1 at the top and left, d−1 at the bottom and right) keep
    their place. Where the original has the side 32 or 224 for both loops, each side has its own here.
    """
    sigma, reach, iterations = _CONSTANTS[constants][severity - 1]

    def blur(x: Tensor, keys: Tensor) -> Tensor:
        levels = cut_to_levels(gaussian_filter(to_fractions(to_levels(x)), sigma))
        source = torch.arange(x.shape[-2] * x.shape[-1], device=x.device).expand(len(x), -1)
        for iteration in range(iterations):
            shifts = draw_shifts(keys, reach, (x.shape[-2], x.shape[-1]), iteration)
            source = source.gather(1, shuffle(*shifts, reach))
        levels = levels.flatten(2).gather(2, source[:, None].expand(-1, x.shape[1], -1)).view_as(levels)
        return (cut_to_levels(gaussian_filter(to_fractions(levels), sigma)) / 255).to(x.dtype)

    return in_parts(blur, x, keys)


def draw_shifts(keys: Tensor, reach: int, size: tuple[int, int], iteration: int) -> tuple[Tensor, Tensor]:
    """(down, right), each N×H×W int64 in −reach … reach−1: where a pixel's neighbour lies."""
    word = randomness.bits(keys, size, iteration)
    down, right = ((((word >> place) & 0xFFFFFF) * (2 * reach) >> 24) - reach for place in (0, 32))
    return down, right


def shuffle(down: Tensor, right: Tensor, reach: int) -> Tensor:
    """N×(H·W) int64: the pixel (in reading order) whose colour each pixel has when the loop is over."""
    height, width = down.shape[-2:]
    row, column = (torch.arange(size, device=down.device) for size in (height, width))
    visited = ((row > reach) & (row <= height - reach))[:, None] & ((column > reach) & (column <= width - reach))
    here = row[:, None] * width + column
    neighbour = torch.where(visited, here + down * width + right, here).flatten(1)
    if reach == 1:  # shifts of −1 and 0: the loop has not reached any of these neighbours
        return neighbour
    here, visited = here.flatten(), visited.flatten()
    passed = (neighbour > here) & visited[neighbour]
    link = torch.where(passed, neighbour, here)
    for _ in range(_DOUBLINGS):
        link = link.gather(1, link)
    return neighbour.gather(1, link)
