"""The nearest linearised decision boundary of a model around a point (Moosavi-Dezfooli et al. 2016): FAB and DeepFool.

One forward pass, and one backward pass for each wrong class that is linearised.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hardtack.attacks.gradients import weighted_gradient
from hardtack.attacks.pool.search import pick
from hardtack.threats.planes import distance_to_plane


def nearest_boundary(
    model: nn.Module,
    point: Tensor,
    y: Tensor,
    *,
    norm: str,
    count: Callable[[int], int],
    among: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits at `point`, and of the wrong class whose linearised boundary is nearest in `norm` its logit minus the
    label's, and the gradient of that difference.

    `count`: of so many classes, how many of the likeliest wrong ones at the point are linearised. `among` (N×K) names
    the classes instead.
    """
    logits, gradient_of = _pullback(model, point)
    names = torch.arange(logits.shape[1], device=logits.device)
    own = names == y[:, None]
    if among is None:
        among = logits.nan_to_num(0.0).masked_fill(own, -torch.inf).topk(count(logits.shape[1]), dim=1).indices
    best = torch.full_like(logits[:, 0], torch.inf)
    rise, normal = torch.zeros_like(best), torch.zeros_like(point)
    for place in range(among.shape[1]):
        wrong = names == among[:, place, None]
        ahead = torch.where(wrong, logits, 0).sum(dim=1) - torch.where(own, logits, 0).sum(dim=1)
        gradient = gradient_of(wrong.to(logits.dtype) - own.to(logits.dtype))
        distance = distance_to_plane(norm, gradient, ahead)
        nearer = (distance < best) | (place == 0)
        best, rise = torch.where(nearer, distance, best), torch.where(nearer, ahead, rise)
        normal = pick(nearer, gradient, normal)
    return logits, rise, normal


def plain_logits(model: nn.Module, image: Tensor) -> Tensor:
    """Logits in fp32, of a model in double precision in fp64."""
    logits = model(image)
    return logits if logits.dtype == torch.float64 else logits.float()


def _pullback(model: nn.Module, point: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The logits at a point, and the function from weights of logits (N×classes) to the gradient of their sum."""
    if torch.compiler.is_compiling():
        logits, pull = torch.func.vjp(lambda image: plain_logits(model, image), point)  # type: ignore[misc]
        return logits, lambda weights: pull(weights)[0]
    image = point.detach().requires_grad_()
    logits = plain_logits(model, image)
    if not logits.requires_grad:  # the model cuts the path to its input
        return logits, lambda weights: torch.zeros_like(point)

    def gradient_of(weights: Tensor) -> Tensor:
        return weighted_gradient(logits, weights, image, again=True)

    return logits.detach(), gradient_of
