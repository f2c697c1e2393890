"""What an attack climbs: losses per image, higher meaning closer to (or further into) a wrong answer.

Each takes logits N×C and labels N and returns N values in fp32. `kl` needs the clean logits as its reference.
A targeted attack climbs the negated loss of the target class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from hardtack.errors import UserError, did_you_mean

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def cross_entropy(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none")


def margin(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Largest other logit minus the label's: positive exactly when the image is misclassified."""
    label = F.one_hot(y, logits.shape[1]).bool()
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


def kullback_leibler(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """KL(clean ‖ adversarial), the inner problem of TRADES. The label is not used."""
    assert reference is not None, "kl needs the clean logits"
    attacked, clean = logits.log_softmax(dim=1), reference.log_softmax(dim=1)
    return F.kl_div(attacked, clean, reduction="none", log_target=True).sum(dim=1)


LOSSES: dict[str, Loss] = {
    "ce": cross_entropy,
    "margin": margin,
    "dlr": difference_of_logits_ratio,
    "kl": kullback_leibler,
}


def get_loss(name: str) -> Loss:
    if name not in LOSSES:
        hint = did_you_mean(name, LOSSES) or f"; known: {', '.join(LOSSES)}"
        raise UserError(f"there is no attack loss '{name}'{hint}")
    return LOSSES[name]
