"""Verification: an image counts as broken only after a forward pass in fp32 over the very tensor that is kept.

The image must lie inside the ball of the threat and inside [0,1], keep to the attack's own limits, and be
misclassified.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.base.capture import Captured
from hardtack.base.runtime import Runtime

SECOND_VOTE = 5
_SIZES = (16, 64, 256)


class Verdict(NamedTuple):
    wrong: Tensor  # inside the ball and the box, and misclassified (or classified as the target)
    predicted: Tensor
    finite: Tensor


class Verifier:
    """Verifies images on `model`. `votes` > 1: a random model is called so often, its mean probability decides."""

    def __init__(self, model: nn.Module, runtime: Runtime, *, votes: int = 1, batch_size: int = 256) -> None:
        self.model, self.runtime, self.votes, self.batch_size = model, runtime, votes, batch_size
        self.forwards = 0
        self._recorded: dict[int, Captured] = {}  # graphs by batch size, as a few images must not cost many launches

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """fp32 logits N×classes; with `votes` > 1 the logarithm of the mean probabilities."""
        try:
            parts = [self._forward(part) for part in x.split(self.batch_size)]
        except torch.OutOfMemoryError:
            if self.batch_size == 1:
                raise
            self.batch_size //= 2
            self._recorded.clear()  # graphs keep the memory of their largest batch
            torch.cuda.empty_cache()
            return self.logits(x)
        return torch.cat(parts) if parts else x.new_zeros((0, 1))

    def _forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x) * self.votes
        with self.runtime.arithmetic("fp32"):
            if self.votes > 1:
                return sum(self.model(x).float().softmax(dim=1) for _ in range(self.votes)).div(self.votes).log()
            if not self.runtime.captures:
                return self.model(x).float()
            # few sizes, since each has its own graph; none larger than what is known to fit into memory
            size = min(next((size for size in _SIZES if size >= len(x)), self.batch_size), self.batch_size)
            padded = torch.cat([x, x[:1].expand(size - len(x), *x.shape[1:])])
            recorded = self._recorded.setdefault(size, Captured(lambda image: self.model(image).float()))
            return recorded(padded)[: len(x)].clone()

    def __call__(self, x_adv: Tensor, x: Tensor, y: Tensor, attack: Attack, target: Tensor | None = None) -> Verdict:
        """`target`: the classes that must be reached, for an attack where only those count."""
        verdict = self._once(x_adv, x, y, attack, target)
        if self.votes == 1 or not verdict.wrong.any():
            return verdict
        # a random model is verified at every check; only a larger vote keeps one lucky draw of many from deciding
        larger = Verifier(self.model, self.runtime, votes=SECOND_VOTE * self.votes, batch_size=self.batch_size)
        again = larger._once(x_adv, x, y, attack, target)
        self.forwards += larger.forwards
        return verdict._replace(wrong=verdict.wrong & again.wrong)

    def _once(self, x_adv: Tensor, x: Tensor, y: Tensor, attack: Attack, target: Tensor | None) -> Verdict:
        logits = self.logits(x_adv)
        finite, predicted = ~logits.isnan().any(dim=1) & ~logits.isposinf().any(dim=1), logits.argmax(dim=1)
        if self.votes == 1:
            finite = logits.isfinite().all(dim=1)
        there = predicted != y if target is None else predicted == target
        allowed = attack.threat.contains(x_adv, x) & attack.allows(x_adv, x, self.model)
        return Verdict(finite & there & allowed, predicted, finite)
