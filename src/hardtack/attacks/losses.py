"""What an attack climbs: losses per image, higher meaning closer to (or further into) a wrong answer.

Each takes logits N×C and labels N and returns N values in fp32. `kl` needs the clean logits as its reference.
A targeted attack climbs the negated loss of the target class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from hardtack.base.errors import UserError, did_you_mean

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def cross_entropy(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none")


def margin(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Largest other logit minus the label's: positive exactly when the image is misclassified."""
    label = torch.arange(logits.shape[1], device=logits.device) == y[:, None]
    others = logits.masked_fill(label, -torch.inf).amax(dim=1)
    return others - logits.masked_fill(~label, -torch.inf).amax(dim=1)


def difference_of_logits_ratio(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Margin over the spread between the first and third logits (Croce and Hein 2020): blind to scale.

    With fewer than three classes there is no third logit and the plain margin takes over.
    """
    if logits.shape[1] < 3:
        return margin(logits, y)
    top = logits.topk(3, dim=1).values
    return margin(logits, y) / (top[:, 0] - top[:, 2] + 1e-12)


def probability_margin(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Largest other probability minus the label's (Ma et al. 2024), in [−1, 1] whatever the scale of the logits."""
    return margin(logits.float().softmax(dim=1), y)


def kullback_leibler(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """KL(clean ‖ adversarial), the inner problem of TRADES. The label is not used."""
    assert reference is not None, "kl needs the clean logits"
    attacked, clean = logits.log_softmax(dim=1), reference.log_softmax(dim=1)
    return F.kl_div(attacked, clean, reduction="none", log_target=True).sum(dim=1)


LOSSES: dict[str, Loss] = {
    "ce": cross_entropy,
    "margin": margin,
    "dlr": difference_of_logits_ratio,
    "pm": probability_margin,
    "kl": kullback_leibler,
}


def get_loss(name: str) -> Loss:
    if name not in LOSSES:
        hint = did_you_mean(name, LOSSES) or f"; known: {', '.join(LOSSES)}"
        raise UserError(f"there is no attack loss '{name}'{hint}")
    return LOSSES[name]


# ---------------------------------------------------------------- towards a target

TargetLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def _of(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels[:, None])[:, 0]


def _target_ratio(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """The targeted difference of logits ratio; with fewer than four classes the plain difference takes over."""
    if logits.shape[1] < 4:
        return _of(logits, target) - _of(logits, y)
    top = logits.topk(4, dim=1).values
    return (_of(logits, target) - _of(logits, y)) / (top[:, 0] - 0.5 * (top[:, 2] + top[:, 3]) + 1e-12)


def _target_probability(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    probabilities = logits.softmax(dim=1)
    return _of(probabilities, target) - _of(probabilities, y)


TARGET_LOSSES: dict[str, TargetLoss] = {
    "ce": lambda logits, y, target: -F.cross_entropy(logits, target, reduction="none"),
    "margin": lambda logits, y, target: _of(logits, target) - _of(logits, y),
    "dlr": _target_ratio,
    "pm": _target_probability,
}


def target_loss(name: str) -> TargetLoss:
    """The loss that rises as the target class gains on the label, by the name of its untargeted sibling."""
    return TARGET_LOSSES[name]
