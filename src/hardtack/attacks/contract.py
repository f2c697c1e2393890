"""The attack contract, for whatever has a `search`: `attack(model, x, y) -> x_adv`, and nothing else is touched."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hardtack.attacks.outcome import Outcome
from hardtack.attacks.preserve_state import preserve_state


class Called:
    """Calling an attack by itself; `search` does the work, and `mode` (eval unless it says otherwise) the model's."""

    search: Any

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> Tensor:
        """Adversarial images for `x` (N×3×H×W in [0,1]).

        `keys` name the images, so that each has random numbers of its own (default: by position); `target`: classes to
        reach, one for each image.
        """
        return self.run(model, x, y, keys=keys, target=target).x_adv

    def run(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> Outcome:
        """The adversarial images and what the search saw on the way."""
        with preserve_state(model, mode=getattr(self, "mode", "eval")):
            # copies, because tensors made in inference mode cannot take part in a gradient
            target = None if target is None else target.clone()
            return self.search(model, x.detach().clone(), y.clone(), keys=keys, target=target, verdict=True)
