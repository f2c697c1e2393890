"""What a pooled search works with: planned attempts, new items, and a state of tensors with one row per item.

An *item* is one attempt on one image: from one random start, or towards one target class. `Attack.begin` makes the
rows of new items without calling the model; `Attack.advance` spends one pass on every row. Rows do not depend on each
other and count their own passes in `t`, so that items of any age share a batch, and a pass can be replayed as one CUDA
graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

State = dict[str, Tensor]


class NewItems(NamedTuple):
    """New items, one row each."""

    x: Tensor  # N×3×H×W, the clean images
    y: Tensor
    target: Tensor  # the class to aim at; −1: away from the label, towards any class
    keys: Tensor  # random keys: a function of the image, the attack, the stage, the restart and the target's rank
    restart: Tensor  # the number of earlier attempts of the same kind
    steps: Tensor  # the number of steps that this item may take
    clean: Tensor  # logits of the clean images
    start: Tensor  # the closest image found so far
    warm: Tensor  # whether to start there; otherwise the search starts in its own way
    image_keys: Tensor  # the images' own keys, for an attack that derives its random numbers in its own way


class Cost(NamedTuple):
    """Passes of one image through the model."""

    forwards: int = 0
    backwards: int = 0

    def times(self, count: int) -> Cost:
        return Cost(self.forwards * count, self.backwards * count)

    def plus(self, other: Cost) -> Cost:
        return Cost(self.forwards + other.forwards, self.backwards + other.backwards)


class PlannedAttempt(NamedTuple):
    """One attempt that is planned for every image: which target, which restart, how long, from where."""

    rank: int = -1  # of the target class among the likeliest wrong classes; −1: no target
    restart: int = 0
    steps: int = 0
    warm: bool = False  # starts at the closest image found so far


def common_entries(items: NewItems) -> State:
    """The entries that every state has.

    `closest` is the image that came closest to fooling the model, found in pass `found_at`. A `margin` > 0 claims that
    it fools the model, and the pool will then verify it. Images are compared by their margin, also between attempts; a
    search that compares them by something else has an entry `score`.
    """
    n, device = len(items.x), items.x.device
    never = torch.full((n,), -torch.inf, device=device)
    no = torch.zeros(n, dtype=torch.bool, device=device)
    return {
        "x": items.x, "y": items.y, "target": items.target, "keys": items.keys, "steps": items.steps,
        "t": torch.zeros(n, dtype=torch.int64, device=device), "done": no, "closest": items.x.clone(),
        "margin": never, "logits": items.clean, "found_at": torch.full_like(items.y, -1),
        "first_loss": never, "top_loss": never, "zero_gradient": no, "not_finite": no,
    }  # fmt: skip


def success_margin(logits: Tensor, y: Tensor, target: Tensor, *, reach: bool) -> Tensor:
    """How far the logits are on the wrong side; −inf for NaN logits. `reach`: only the target class counts as wrong.

    Of equal logits one class is predicted. Where that makes the prediction wrong, the margin is positive, but tiny.
    """
    goal = target if reach else y
    best_other = logits.scatter(1, goal[:, None], -torch.inf).amax(dim=1)
    at_goal = logits.gather(1, goal[:, None])[:, 0]
    margin = at_goal - best_other if reach else best_other - at_goal
    predicted = logits.argmax(dim=1)
    wrong = predicted == goal if reach else predicted != goal
    margin = torch.where((margin == 0) & wrong, torch.finfo(margin.dtype).tiny, margin)
    return torch.where(finite_rows(logits), margin, -torch.inf)


def finite_rows(logits: Tensor) -> Tensor:
    """Rows without NaN and infinite entries, in three kernels: zero times anything else is zero."""
    return (logits.detach() * 0).sum(dim=1) == 0


def observe(
    state: State,
    point: Tensor,
    logits: Tensor,
    *,
    reach: bool,
    margin: Tensor | None = None,
    score: Tensor | None = None,
    counts: Tensor | None = None,
    loss: Tensor | None = None,
    gradient: Tensor | None = None,
) -> State:
    """The common entries after a pass over `point`. Only rows where `counts` is true may become the closest image."""
    if margin is None:
        margin = success_margin(logits, state["y"], state["target"], reach=reach)
    better = margin > state["margin"] if score is None else score > state["score"]
    if counts is not None:
        better = better & counts
    entries = {
        "t": state["t"] + 1,
        "closest": pick(better, point, state["closest"]),
        "margin": torch.where(better, margin, state["margin"]),
        "logits": pick(better, logits, state["logits"]),
        "found_at": torch.where(better, state["t"], state["found_at"]),
        "not_finite": state["not_finite"] | ~finite_rows(logits),
    }
    if score is not None:
        entries["score"] = torch.where(better, score, state["score"])
    if loss is not None:
        first = state["t"] == 0
        entries["first_loss"] = torch.where(first, loss, state["first_loss"])
        entries["top_loss"] = torch.maximum(state["top_loss"], loss.nan_to_num(-torch.inf, -torch.inf, -torch.inf))
        if gradient is not None:
            zero = ~(gradient.flatten(1).abs().amax(dim=1) > 0)  # true for NaN, which gives no direction either
            entries["zero_gradient"] = torch.where(first, zero, state["zero_gradient"])
    return entries


def pick(rows: Tensor, chosen: Tensor, otherwise: Tensor) -> Tensor:
    """Row by row: `chosen` where `rows` is true."""
    return torch.where(rows.reshape(-1, *[1] * (chosen.dim() - 1)), chosen, otherwise)


def averaged(passes: int, once: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The mean of several draws of a random model (expectation over transformation); a single draw is unchanged."""
    total = once()
    for _ in range(passes - 1):
        total = tuple(sum_ + more for sum_, more in zip(total, once(), strict=True))
    return total if passes == 1 else tuple(part / passes for part in total)
