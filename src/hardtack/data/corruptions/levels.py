"""Random maps from grey level to grey level, drawn from tables of their 256×256 probabilities.

Walker's alias method ("An efficient method for generating discrete random variables with general distributions",
1977): a distribution over 256 outcomes is written as 256 equally likely columns that hold two outcomes each. A draw
picks a column and then one of the two, whatever the distribution looks like: one look-up per value.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_LEVELS = 256
_CHANCE_BITS = 23  # chance and other outcome of a column share 31 bits: an int32 table stays in the cache


@functools.lru_cache(maxsize=32)
def shot_table(photons: int, device: str) -> Tensor:
    """Alias table, on `device`, of the grey level that a Poisson number of photons is stored as."""
    return alias_table(shot_probabilities(photons)).to(device)


def shot_probabilities(photons: int) -> Tensor:
    """256×256 float64: the chance that grey level i becomes j, ⌊255·min(k / photons, 1)⌋ of a Poisson k."""
    mean = torch.arange(_LEVELS, dtype=torch.float64)[:, None] * (photons / 255)
    below_full = torch.arange(photons, dtype=torch.float64)  # counts that do not reach full brightness
    chance = torch.exp(torch.xlogy(below_full, mean) - mean - torch.lgamma(below_full + 1))
    stored = torch.arange(photons) * 255 // photons
    chances = torch.zeros(_LEVELS, _LEVELS, dtype=torch.float64).index_add_(1, stored, chance)
    chances[:, -1] += (1 - chances.sum(dim=1)).clamp(min=0)
    return chances


def alias_table(probabilities: Tensor) -> Tensor:
    """256·256 int32, row after row: a column's chance to keep its own outcome, in 2⁻²³, then the other outcome."""
    table = torch.empty(_LEVELS, _LEVELS, dtype=torch.int32)
    for level, row in enumerate((probabilities * _LEVELS).tolist()):
        table[level] = torch.tensor(_alias_row(row), dtype=torch.int32)
    return table.view(-1)


def _alias_row(shares: list[float]) -> list[int]:
    """`shares` sum to 256, one for each column; columns that have less than 1 are filled from ones that have more."""
    packed = [0] * _LEVELS
    poor = [outcome for outcome, share in enumerate(shares) if share < 1]
    rich = [outcome for outcome, share in enumerate(shares) if share >= 1]
    while poor and rich:
        column, giver = poor.pop(), rich[-1]
        packed[column] = _pack(shares[column], giver)
        shares[giver] -= 1 - shares[column]
        if shares[giver] < 1:
            poor.append(rich.pop())
    for column in poor + rich:  # full but for rounding
        packed[column] = _pack(1.0, column)
    return packed


def _pack(chance: float, other: int) -> int:
    # a chance of 1 does not fit, and need not: a full column's other outcome is its own
    return min(round(chance * 2**_CHANCE_BITS), 2**_CHANCE_BITS - 1) * _LEVELS + other


def sample(table: Tensor, x: Tensor, bits: Tensor) -> Tensor:
    """`x` in steps of 1/255 through the random map, by 64 random `bits` per value (its shape); in steps of 1/255."""
    column = bits & (_LEVELS - 1)
    entry = table[(x * 255).round().long() * _LEVELS + column]
    chance = (bits >> 32) & (2**_CHANCE_BITS - 1)
    return torch.where(chance < entry >> 8, column, entry & 255).to(x.dtype) / 255
