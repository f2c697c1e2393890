"""Target classes: the one vocabulary that all attacks share.

A target is a wrong class that an attack aims at. There are three ways to name it:

    target=TENSOR (in Python)                  the caller names the class of each image; only reaching it is a success
    target=random | least_likely | runner_up   one class for each image, chosen at the clean image
    targets=K                                  the K likeliest wrong classes, one after the other (ranks 0 … K−1)

The runner-up is the class of rank 0. `reach` says what counts as a success of a pooled attack: the target class only,
or (by default, as in AutoAttack) any misclassification on the way to it. A batch attack with `target` stops at
nothing: it returns the image that reached the target or came closest to it, and the evaluation verifies that image.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from hardtack.base import randomness

TargetChoice = Literal["random", "least_likely", "runner_up"]
_STREAM = 7  # of the image's random numbers


def ranking(logits: Tensor, y: Tensor) -> Tensor:
    """The wrong classes of each image, likeliest first: N×(classes−1)."""
    own = torch.arange(logits.shape[1], device=logits.device) == y[:, None]
    return logits.masked_fill(own, -torch.inf).argsort(dim=1, descending=True, stable=True)[:, :-1]


def choose_target(clean: Tensor, y: Tensor, keys: Tensor, how: str) -> Tensor:
    """A class other than the label: at random per image, or the least or most likely wrong one at the clean image."""
    classes = clean.shape[1]
    if how == "random":
        return (y + 1 + randomness.integers(keys, classes - 1, stream=_STREAM)) % classes
    score = clean if how == "runner_up" else -clean
    return score.masked_fill(nn.functional.one_hot(y, classes).bool(), -torch.inf).argmax(dim=1)


def aim(
    model: nn.Module, x: Tensor, y: Tensor, keys: Tensor | None, seed: int, target: Tensor | None, how: str | None
) -> tuple[Tensor, float]:
    """The labels to leave and +1 or, with targets given or to be chosen by `how`, the classes to reach and −1."""
    y = y.argmax(dim=1) if y.is_floating_point() else y
    if target is None and how is not None:
        keys = torch.arange(len(x), device=x.device) if keys is None else keys
        with torch.no_grad():
            target = choose_target(model(x).float(), y, randomness.make_keys(keys, seed), how)
    return (y, 1.0) if target is None else (target, -1.0)
