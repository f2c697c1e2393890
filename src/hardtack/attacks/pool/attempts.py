"""What the pool records during one stage: which attempts are finished, which one succeeded, how close the others came.

The record can be written to disk at any moment and restored. Finished attempts are not repeated; unfinished ones start
again from the same random numbers, so that a killed run ends with the same verdicts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks.pool.search import State, success_margin
from hardtack.attacks.targets import ranking


class AttackInputs(NamedTuple):
    """The images that a stage attacks, on the model's device."""

    x: Tensor  # N×3×H×W in [0,1]
    y: Tensor
    keys: Tensor  # N int64: the image's position in its data set, from which everything random is derived
    clean: Tensor  # N×classes, logits of the clean images
    target: Tensor | None = None  # the class to reach, where the user names one

    def of(self, rows: Tensor) -> AttackInputs:
        return AttackInputs(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


_TENSORS = (
    "x_adv", "logits", "margin", "score", "first_loss", "top_loss", "zero_gradient", "not_finite", "unverified",
    "ranks",
)  # fmt: skip
_ARRAYS = ("passes", "successful", "found_at_step", "target", "closest_attempt")


class AttemptRecord:
    """One row per image. Attempts are numbered in the order in which they are planned."""

    def __init__(self, inputs: AttackInputs, attempts: int) -> None:
        n, device = len(inputs.x), inputs.x.device
        never = torch.full((n,), -torch.inf, device=device)
        no = torch.zeros(n, dtype=torch.bool, device=device)
        self.x_adv = inputs.x.clone()  # the image that fooled the model, or the closest to it
        self.logits = inputs.clean.clone()  # of x_adv
        self.ranks = ranking(inputs.clean, inputs.y)  # of target classes, as the current round ranks them
        self.margin, self.score = never, never.clone()  # of x_adv
        self.first_loss, self.top_loss = never.clone(), never.clone()
        self.zero_gradient, self.not_finite, self.unverified = no, no.clone(), no.clone()
        self.passes = np.full((n, max(attempts, 1)), -1, dtype=np.int32)  # of each attempt; −1: not finished
        self.successful = np.full(n, -1, dtype=np.int32)  # the first successful attempt; −1: none
        self.found_at_step = np.full(n, -1, dtype=np.int32)
        self.target = np.full(n, -1, dtype=np.int32)
        self.closest_attempt = np.full(n, max(attempts, 1), dtype=np.int32)  # the first of those that came closest

    @property
    def broken(self) -> np.ndarray:
        return self.successful >= 0

    def total_passes(self) -> np.ndarray:
        """Passes spent on each image, counted as if its attempts had been made in order up to the first success."""
        return np.where(self._counted(), self.passes, 0).sum(axis=1)

    def full_attempts(self, lengths: np.ndarray) -> np.ndarray:
        """How many of these attempts were of full length."""
        return (self._counted() & (self.passes >= lengths)).sum(axis=1)

    def _counted(self) -> np.ndarray:
        number = np.arange(self.passes.shape[1])
        return (self.passes >= 0) & ((self.successful < 0)[:, None] | (number <= self.successful[:, None]))

    def is_near(self, inputs: AttackInputs, rows: np.ndarray, share: float) -> np.ndarray:
        """Which of the images have no more than `share` of their clean margin left at the closest point found.

        An image whose success was not confirmed is near: its closest point was discarded.
        """
        clean = -success_margin(inputs.clean[rows], inputs.y[rows], inputs.y[rows], reach=False)
        return ((-self.margin[rows] <= share * clean) | self.unverified[rows]).cpu().numpy()

    def add_failures(self, rows: Tensor, numbers: np.ndarray, slots: Tensor, state: State) -> None:
        """Attempts without success, one of each image: keep the closest image where it is closer than before."""
        score, at = state.get("score", state["margin"])[slots], rows.cpu().numpy()
        earlier = torch.as_tensor(numbers < self.closest_attempt[at], device=rows.device)
        best = self.score[rows]
        closer = (score > best) | ((score == best) & earlier & score.isfinite())
        self.score[rows] = torch.where(closer, score, best).to(best.dtype)
        self.margin[rows] = torch.where(closer, state["margin"][slots], self.margin[rows]).to(best.dtype)
        self.x_adv[rows[closer]] = state["closest"][slots[closer]]
        self.logits[rows[closer]] = state["logits"][slots[closer]].to(self.logits.dtype)
        replaced = closer.cpu().numpy()
        self.closest_attempt[at[replaced]] = numbers[replaced]
        self.add_observations(rows, slots, state)

    def add_observations(self, rows: Tensor, slots: Tensor, state: State) -> None:
        """Signs of a failing search, which any attempt may show; one attempt of each image at a time."""
        self.zero_gradient[rows] |= state["zero_gradient"][slots]
        self.not_finite[rows] |= state["not_finite"][slots]
        first, top = (state[name][slots].to(self.top_loss.dtype) for name in ("first_loss", "top_loss"))
        rise, before = (_rise(*pair) for pair in ((first, top), (self.first_loss[rows], self.top_loss[rows])))
        self.first_loss[rows] = torch.where(rise > before, first, self.first_loss[rows])
        self.top_loss[rows] = torch.where(rise > before, top, self.top_loss[rows])

    def add_successes(
        self, rows: np.ndarray, numbers: np.ndarray, targets: np.ndarray, slots: Tensor, state: State
    ) -> None:
        """Verified successes, one for each of `rows`."""
        index = torch.as_tensor(rows, device=slots.device)
        self.x_adv[index] = state["closest"][slots]
        self.logits[index] = state["logits"][slots].to(self.logits.dtype)
        self.margin[index] = state["margin"][slots].to(self.margin.dtype)
        self.successful[rows], self.target[rows] = numbers, targets
        self.found_at_step[rows] = state["found_at"][slots].cpu().numpy()

    # ------------------------------------------------------------ on disk

    def arrays(self) -> dict[str, np.ndarray]:
        tensors = {name: vars(self)[name].cpu().numpy() for name in _TENSORS}
        return tensors | {name: vars(self)[name] for name in _ARRAYS}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for name in _TENSORS:
            column: Tensor = vars(self)[name]
            setattr(self, name, torch.from_numpy(arrays[name]).to(column.device, column.dtype))
        for name in _ARRAYS:
            setattr(self, name, np.array(arrays[name]))


def _rise(first: Tensor, top: Tensor) -> Tensor:
    """How much a loss increased; −inf where it was never a number."""
    return (top - first).nan_to_num(-torch.inf, torch.inf, -torch.inf)
