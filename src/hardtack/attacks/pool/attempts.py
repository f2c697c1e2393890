"""What the pool knows about the images of one stage: which tries are over, who fell to which, how near the others came.

A attempts can be written down at any moment and read back: tries that are over are not repeated, and those that
were under way begin again from the same random numbers, so that a killed run ends with the same verdicts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Images(NamedTuple):
    """The images a stage attacks, on the model's device."""

    x: Tensor  # N×3×H×W in [0,1]
    y: Tensor
    keys: Tensor  # N int64: the image's place in its data set, from which all that is random follows
    clean: Tensor  # N×classes, logits of the clean images
    target: Tensor | None = None  # a class to reach, where the user names one

    def of(self, rows: Tensor) -> Images:
        return Images(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


def ranking(logits: Tensor, y: Tensor) -> Tensor:
    """The wrong classes of each image, likeliest first: N×(classes−1)."""
    own = torch.arange(logits.shape[1], device=logits.device) == y[:, None]
    return logits.masked_fill(own, -torch.inf).argsort(dim=1, descending=True, stable=True)[:, :-1]


_IMAGES = (
    "x_adv", "logits", "margin", "first_loss", "top_loss", "zero_gradient", "not_finite", "unverified", "ranks",
)  # fmt: skip
_TRIES = ("used", "won", "step", "target", "nearest")


class Attempts:
    """One row per image. `used` counts the passes of each try, −1 while it is not over."""

    def __init__(self, images: Images, tries: int) -> None:
        n, device = len(images.x), images.x.device
        never = torch.full((n,), -torch.inf, device=device)
        no = torch.zeros(n, dtype=torch.bool, device=device)
        self.x_adv = images.x.clone()  # the image that fooled the model, or the closest to it
        self.logits = images.clean.clone()  # there
        self.ranks = ranking(images.clean, images.y)  # of target classes, as the round under way sees them
        self.margin, self.first_loss, self.top_loss = never, never.clone(), never.clone()
        self.zero_gradient, self.not_finite, self.unverified = no, no.clone(), no.clone()
        self.used = np.full((n, max(tries, 1)), -1, dtype=np.int32)
        self.won = np.full(n, -1, dtype=np.int32)  # the try that fooled the model, the first in order
        self.step = np.full(n, -1, dtype=np.int32)
        self.target = np.full(n, -1, dtype=np.int32)
        self.nearest = np.full(n, max(tries, 1), dtype=np.int32)  # the try that came closest, the first in order

    @property
    def fallen(self) -> np.ndarray:
        return self.won >= 0

    def passes(self) -> np.ndarray:
        """Steps spent on each image, as if its tries had been made one after the other up to the first success."""
        order = np.arange(self.used.shape[1])
        counted = (self.used >= 0) & ((self.won < 0)[:, None] | (order <= self.won[:, None]))
        return np.where(counted, self.used, 0).sum(axis=1)

    def learn(self, rows: Tensor, orders: np.ndarray, slots: Tensor, state: dict[str, Tensor]) -> None:
        """What failed tries saw, one of each image: the closest image, where it is nearer than what is known."""
        margin, at = state["margin"][slots], rows.cpu().numpy()
        earlier = torch.as_tensor(orders < self.nearest[at], device=rows.device)
        known = self.margin[rows]
        nearer = (margin > known) | ((margin == known) & earlier & margin.isfinite())
        self.margin[rows] = torch.where(nearer, margin, known).to(known.dtype)
        self.x_adv[rows[nearer]] = state["closest"][slots[nearer]]
        self.logits[rows[nearer]] = state["logits"][slots[nearer]].to(self.logits.dtype)
        took = nearer.cpu().numpy()
        self.nearest[at[took]] = orders[took]
        self.observe(rows, slots, state)

    def observe(self, rows: Tensor, slots: Tensor, state: dict[str, Tensor]) -> None:
        """Signs of trouble, which any try may show; one try of each image at a time."""
        for flag in ("zero_gradient", "not_finite"):
            getattr(self, flag)[rows] |= state[flag][slots]
        first, top = (state[name][slots].to(self.top_loss.dtype) for name in ("first_loss", "top_loss"))
        rose, known = (_rise(*pair) for pair in ((first, top), (self.first_loss[rows], self.top_loss[rows])))
        self.first_loss[rows] = torch.where(rose > known, first, self.first_loss[rows])
        self.top_loss[rows] = torch.where(rose > known, top, self.top_loss[rows])

    def enter(self, rows: np.ndarray, orders: np.ndarray, targets: np.ndarray, slots: Tensor, state: Any) -> None:
        """Confirmed successes, one for each of `rows`."""
        index = torch.as_tensor(rows, device=slots.device)
        self.x_adv[index] = state["closest"][slots]
        self.logits[index] = state["logits"][slots].to(self.logits.dtype)
        self.margin[index] = state["margin"][slots].to(self.margin.dtype)
        self.won[rows], self.target[rows] = orders, targets
        self.step[rows] = state["found_at"][slots].cpu().numpy()

    # ------------------------------------------------------------ on paper

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).cpu().numpy() for name in _IMAGES} | {
            name: getattr(self, name) for name in _TRIES
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        for name in _IMAGES:
            kept = getattr(self, name)
            setattr(self, name, torch.from_numpy(arrays[name]).to(kept.device, kept.dtype))
        for name in _TRIES:
            setattr(self, name, np.array(arrays[name]))


def _rise(first: Tensor, top: Tensor) -> Tensor:
    """By how much a loss rose; −inf where it was never a number."""
    return (top - first).nan_to_num(-torch.inf, torch.inf, -torch.inf)
