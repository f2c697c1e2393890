"""What a search must offer so that the pool can run it: a state of tensors, one row per work item, and a step.

A work item is one try at one image: from a random start, or towards a target class. `begin` makes the rows of
new items without asking the model; `step` spends one pass on every row. Rows know nothing of each other and
count their own passes in `t`, so that items of any age share a batch, and a step replays as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


class Work(NamedTuple):
    """New items, one row each."""

    x: Tensor  # N×3×H×W, the clean images
    y: Tensor
    target: Tensor  # a class to head for; −1: away from the label, wherever it leads
    keys: Tensor  # whose random numbers: a function of the image, the attack, the restart
    restart: Tensor  # how many tries of the same kind go before this one
    steps: Tensor  # how long this item may search
    clean: Tensor  # logits of the clean images
    start: Tensor  # the closest image found so far
    warm: Tensor  # whether to begin there; else the search has a way of its own


class Cost(NamedTuple):
    """Passes of one image through the model."""

    forwards: int = 0
    backwards: int = 0

    def times(self, count: int) -> Cost:
        return Cost(self.forwards * count, self.backwards * count)

    def plus(self, other: Cost) -> Cost:
        return Cost(self.forwards + other.forwards, self.backwards + other.backwards)


class Try(NamedTuple):
    """One work item of every image: which target, which restart, how long, from where."""

    rank: int = -1  # of the target among the likeliest wrong classes; −1: none
    restart: int = 0
    steps: int = 0
    warm: bool = False  # begins at the closest image found so far


class Search(Protocol):
    """An attack that the pool can run."""

    threat: Any
    seed: int
    reach: bool  # only the target class counts as a success
    patience: ClassVar[int]  # looks at its items may be so many times rarer

    def tries(self, classes: int) -> list[Try]: ...  # of every image, in their order

    def length(self, steps: int) -> int: ...  # the most calls of `step` that an item of so many steps can take

    def cost(self, classes: int) -> Cost: ...  # of one call of `step`, per row

    def begin(self, work: Work) -> State: ...

    def step(self, model: nn.Module, state: State) -> State: ...


def common(work: Work) -> State:
    """The entries every state has. `closest` is the best image so far: `margin` > 0 says that it fools the model."""
    n, device = len(work.x), work.x.device
    never = torch.full((n,), -torch.inf, device=device)
    no = torch.zeros(n, dtype=torch.bool, device=device)
    return {
        "x": work.x, "y": work.y, "target": work.target, "keys": work.keys, "steps": work.steps,
        "t": torch.zeros(n, dtype=torch.int64, device=device), "done": no, "closest": work.x.clone(),
        "margin": never, "logits": work.clean, "found_at": torch.full_like(work.y, -1),
        "first_loss": never, "top_loss": never, "zero_gradient": no, "not_finite": no,
    }  # fmt: skip


def success_margin(logits: Tensor, y: Tensor, target: Tensor, *, reach: bool) -> Tensor:
    """By how much the model is wrong; −inf for NaN logits. `reach`: only the target class counts as wrong."""
    goal = target if reach else y
    own = torch.arange(logits.shape[1], device=logits.device) == goal[:, None]
    best_other = logits.masked_fill(own, -torch.inf).amax(dim=1)
    at_goal = logits.masked_fill(~own, -torch.inf).amax(dim=1)
    margin = at_goal - best_other if reach else best_other - at_goal
    return torch.where(logits.isfinite().all(dim=1), margin, -torch.inf)


def watch(
    state: State,
    point: Tensor,
    logits: Tensor,
    *,
    reach: bool,
    margin: Tensor | None = None,
    counts: Tensor | None = None,
    loss: Tensor | None = None,
    gradient: Tensor | None = None,
) -> State:
    """The common entries after a pass over `point`. Only rows that `count` (inside the ball) may become closest."""
    if margin is None:
        margin = success_margin(logits, state["y"], state["target"], reach=reach)
    better = margin > state["margin"]
    if counts is not None:
        better = better & counts
    entries = {
        "t": state["t"] + 1,
        "closest": pick(better, point, state["closest"]),
        "margin": torch.where(better, margin, state["margin"]),
        "logits": pick(better, logits, state["logits"]),
        "found_at": torch.where(better, state["t"], state["found_at"]),
        "not_finite": state["not_finite"] | ~logits.isfinite().all(dim=1),
    }
    if loss is not None:
        first = state["t"] == 0
        entries["first_loss"] = torch.where(first, loss, state["first_loss"])
        entries["top_loss"] = torch.maximum(state["top_loss"], loss.nan_to_num(-torch.inf, -torch.inf, -torch.inf))
        if gradient is not None:
            zero = ~(gradient.flatten(1).abs().amax(dim=1) > 0)  # NaN included: it points nowhere either
            entries["zero_gradient"] = torch.where(first, zero, state["zero_gradient"])
    return entries


def pick(rows: Tensor, chosen: Tensor, otherwise: Tensor) -> Tensor:
    """Image by image: `chosen` where `rows` is true."""
    return torch.where(rows.reshape(-1, *[1] * (chosen.dim() - 1)), chosen, otherwise)


def averaged(passes: int, once: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The mean of several draws of a random model (expectation over transformation); one draw as it is."""
    total = once()
    for _ in range(passes - 1):
        total = tuple(sum_ + more for sum_, more in zip(total, once(), strict=True))
    return total if passes == 1 else tuple(part / passes for part in total)
