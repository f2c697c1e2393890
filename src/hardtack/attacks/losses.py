"""What an attack climbs: losses per image, higher meaning closer to (or further into) a wrong answer.

Each takes logits N×C and labels N and returns N values in fp32. `kl` needs the clean logits as its reference.
A targeted attack climbs the negated loss of the target class.

A loss of one's own is a function of (logits, labels) that returns one value per image. It is named by its file,
`attack.loss=mine.py:my_loss`, or registered in a file that is run by `--import`:

    @losses.register("my_loss", help="one line")
    def my_loss(logits, y): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import AfterValidator
from torch import Tensor

from hardtack.base.annotations import Shown
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import losses
from hardtack.models.user_code import UserFunction

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@losses.register("ce", help="cross-entropy")
def cross_entropy(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none")


@losses.register("margin", help="the largest wrong logit minus the label's")
def margin(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Largest other logit minus the label's: positive exactly when the image is misclassified."""
    label = torch.arange(logits.shape[1], device=logits.device) == y[:, None]
    others = logits.masked_fill(label, -torch.inf).amax(dim=1)
    return others - logits.masked_fill(~label, -torch.inf).amax(dim=1)


@losses.register("dlr", help="difference of logits ratio, which ignores the scale of logits")
def difference_of_logits_ratio(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Margin over the spread between the first and third logits (Croce and Hein 2020): blind to scale.

    With fewer than three classes there is no third logit and the plain margin takes over.
    """
    if logits.shape[1] < 3:
        return margin(logits, y)
    top = logits.topk(3, dim=1).values
    return margin(logits, y) / (top[:, 0] - top[:, 2] + 1e-12)


@losses.register("pm", help="the largest wrong probability minus the label's")
def probability_margin(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
    """Largest other probability minus the label's (Ma et al. 2024), in [−1, 1] whatever the scale of the logits."""
    return margin(logits.float().softmax(dim=1), y)


@losses.register("kl", help="divergence from the clean prediction, as in TRADES")
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
    """A loss by its name, or a user's own by its file: `mine.py:my_loss`."""
    if name in LOSSES:
        return LOSSES[name]
    if is_code(name):
        return _own_loss(name, UserFunction.parse(name, "attack.loss").load())
    if name in losses:
        return _own_loss(name, losses.get(name).make)
    known = losses.names()
    hint = did_you_mean(name, known) or f"; known: {', '.join(known)}, or a function of your own: FILE.py:NAME"
    raise UserError(f"there is no attack loss '{name}'{hint}")


def is_code(name: str | None) -> bool:
    """Whether a loss is named by its file."""
    return name is not None and ".py:" in name


def _own_loss(name: str, function: Callable[..., Tensor]) -> Loss:
    """A user's function of (logits, labels), checked."""

    def loss(logits: Tensor, y: Tensor, reference: Tensor | None = None) -> Tensor:
        value = function(logits, y)
        if not isinstance(value, Tensor) or value.shape != y.shape:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise UserError(
                f"the loss {name} must return one value per image, shape {tuple(y.shape)}, found {found} "
                "(cross_entropy needs reduction='none')"
            )
        return value

    return loss


def _known(name: str) -> str:
    if is_code(name):
        UserFunction.parse(name, "loss")  # a file that does not exist is refused now; it is run when it is needed
    else:
        get_loss(name)
    return name


LossName = Annotated[str, AfterValidator(_known), Shown("attack loss", "hardtack list losses")]
"""The name of a loss, in the settings of an attack."""


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
    """The loss that rises as the target class gains on the label, by the name of its untargeted sibling.

    For a loss without a form of its own here it is the negated loss of the target class.
    """
    if name in TARGET_LOSSES:
        return TARGET_LOSSES[name]
    loss = get_loss(name)
    return lambda logits, y, target: -loss(logits, target, None)
