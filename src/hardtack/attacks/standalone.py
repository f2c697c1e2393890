"""What a pooled search does when it is called by itself: it opens a pool of its own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardtack.attacks.outcome import Outcome
from hardtack.attacks.pool.attempts import Images
from hardtack.attacks.pool.search import Try
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime


class Pooled:
    """A search by itself: all images at once, in fp32, returning the first success.

    An image that was not fooled comes back as the closest the search came to fooling the model.
    """

    patience: ClassVar[int] = 1
    seed: int
    reach: bool
    steps: int
    restarts: int

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        verdict: bool = True,
    ) -> Outcome:
        """The search alone; the caller keeps the model `preserve_state`."""
        from hardtack.attacks.pool.pool import Pool  # the pool knows searches, a search finds its pool only here

        attack: Any = self
        if target is not None:
            attack = dataclasses.replace(attack, reach=True, **({"targets": 1} if hasattr(attack, "targets") else {}))
        elif self.reach:
            raise UserError("reach=true needs the classes to reach: attack(model, x, y, target=…)")
        runtime = Runtime(device=str(x.device) if x.device.type == "cuda" else x.device.type, compile=False)
        keys = torch.arange(len(x), device=x.device) if keys is None else keys
        verifier = Verifier(model, runtime, votes=getattr(self, "eot", 1))
        images = Images(x, y.argmax(dim=1) if y.is_floating_point() else y, keys, verifier.logits(x), target)
        pool = Pool(model, runtime, batch_size=len(x), verifier=verifier, every=1)
        attempts = pool.run(attack, images)
        fooled = torch.as_tensor(attempts.fallen, device=x.device)
        return Outcome(
            attempts.x_adv, fooled, torch.as_tensor(attempts.step, device=x.device).long(), attempts.first_loss,
            attempts.top_loss, attempts.zero_gradient, attempts.not_finite,
        )  # fmt: skip

    def tries(self, classes: int) -> list[Try]:
        """Target after target, each with its restarts."""
        targets = getattr(self, "targets", 0)
        ranks = range(min(targets, classes - 1)) if targets else (-1,)
        return [Try(rank, restart, self.steps) for rank in ranks for restart in range(self.restarts)]
