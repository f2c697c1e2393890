"""The only one who may say that an image fell: a forward pass in fp32 over the very tensor that is kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.base.capture import Captured
from hardtack.base.runtime import Runtime

SECOND_VOTE = 5
_SIZES = (16, 64, 256)


class Verdict(NamedTuple):
    wrong: Tensor  # inside the ball and the box, and misclassified (or classified as the target)
    predicted: Tensor
    finite: Tensor


class Verifier:
    """`votes` > 1 asks a random model that often and goes by the mean of its probabilities."""

    def __init__(self, model: nn.Module, runtime: Runtime, *, votes: int = 1, batch_size: int = 256) -> None:
        self.model, self.runtime, self.votes, self.batch_size = model, runtime, votes, batch_size
        self.forwards = 0
        self._recorded: dict[int, Captured] = {}  # by batch size: a few claims at a time must not cost many launches

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """fp32 logits N×classes; of a random model the logarithm of its mean probabilities."""
        try:
            parts = [self._asked(part) for part in x.split(self.batch_size)]
        except torch.OutOfMemoryError:
            if self.batch_size == 1:
                raise
            self.batch_size //= 2
            self._recorded.clear()  # recordings hold the memory of their largest batch
            torch.cuda.empty_cache()
            return self.logits(x)
        return torch.cat(parts) if parts else x.new_zeros((0, 1))

    def _asked(self, x: Tensor) -> Tensor:
        self.forwards += len(x) * self.votes
        with self.runtime.arithmetic("fp32"):
            if self.votes > 1:
                return sum(self.model(x).float().softmax(dim=1) for _ in range(self.votes)).div(self.votes).log()
            if not self.runtime.captures:
                return self.model(x).float()
            # few sizes, since each keeps a recording of its own; none larger than what memory is known to hold
            size = min(next((size for size in _SIZES if size >= len(x)), self.batch_size), self.batch_size)
            padded = torch.cat([x, x[:1].expand(size - len(x), *x.shape[1:])])
            recorded = self._recorded.setdefault(size, Captured(lambda image: self.model(image).float()))
            return recorded(padded)[: len(x)].clone()

    def __call__(self, x_adv: Tensor, x: Tensor, y: Tensor, attack: Any, target: Tensor | None = None) -> Verdict:
        """`target`: classes that have to be reached, where the attack was sent for them."""
        verdict = self._once(x_adv, x, y, attack, target)
        if self.votes == 1 or not verdict.wrong.any():
            return verdict
        # a random model is asked at every look; only a larger vote keeps one lucky draw of many from deciding
        patient = Verifier(self.model, self.runtime, votes=SECOND_VOTE * self.votes, batch_size=self.batch_size)
        again = patient._once(x_adv, x, y, attack, target)
        self.forwards += patient.forwards
        return verdict._replace(wrong=verdict.wrong & again.wrong)

    def _once(self, x_adv: Tensor, x: Tensor, y: Tensor, attack: Any, target: Tensor | None) -> Verdict:
        logits = self.logits(x_adv)
        finite, predicted = ~logits.isnan().any(dim=1) & ~logits.isposinf().any(dim=1), logits.argmax(dim=1)
        if self.votes == 1:
            finite = logits.isfinite().all(dim=1)
        there = predicted != y if target is None else predicted == target
        allowed = attack.threat.contains(x_adv, x)
        if hasattr(attack, "allows"):
            allowed = allowed & attack.allows(x_adv, x, self.model)
        return Verdict(finite & there & allowed, predicted, finite)
