"""What the gradient of a mask says about the choice of its patches.

A patch is hidden or not; the gradient is that of a mask which could hide by degrees. As published every patch is moved
by its own entry. The changes here are settings of the occluder; each leaves the gradient as it is by default.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-30


def credited(
    gradient: Tensor,
    mask: Tensor,
    scores: Tensor,
    *,
    hidden_only: bool = False,
    variety: float = 0.0,
    temperature: float | None = None,
    per_image: bool = False,
) -> Tensor:
    """The gradient that the choice of each patch gets, all N×patches. `mask` is 1 where a patch is hidden."""
    if per_image:
        gradient = _of_equal_norm(gradient)
    if hidden_only:
        gradient = _against_the_mean(gradient, mask)
    if temperature is not None:
        gradient = gradient * _slope(scores, mask, temperature)
    if variety:
        gradient = gradient - variety * gradient.square().mean().sqrt() * _more_often(mask)
    return gradient


def _of_equal_norm(gradient: Tensor) -> Tensor:
    """Every image's gradient with the same norm, the root mean square of what they were."""
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return gradient / norms.clamp_min(_TINY) * norms.square().mean().sqrt()


def _against_the_mean(gradient: Tensor, mask: Tensor) -> Tensor:
    """Of the hidden patches only, minus the mean over all that are hidden in the batch.

    To first order the gradient at a hidden patch is what hiding it adds to the loss. At a patch that is not hidden it
    says nothing: the alignment has its minimum there.
    """
    mean = (gradient * mask).sum() / mask.sum().clamp_min(1)
    return (gradient - mean) * mask


def _slope(scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """The slope of a sigmoid around the threshold between hidden patches and others, as a share of the steepest."""
    count = int(mask.shape[1])
    hidden = mask.sum(dim=1, keepdim=True).long().clamp(1, count)
    ordered = scores.sort(dim=1).values
    below = ordered.gather(1, hidden - 1)
    above = ordered.gather(1, hidden.clamp_max(count - 1))
    width = temperature * scores.std(dim=1, keepdim=True).clamp_min(_TINY)
    rise = torch.sigmoid((scores - (below + above) / 2) / width)
    return 4 * rise * (1 - rise)


def _more_often(mask: Tensor) -> Tensor:
    """By how much each patch is hidden more often in this batch than the mean patch, as a share of that."""
    often = mask.mean(dim=0, keepdim=True)
    mean = often.mean().clamp_min(_TINY)
    return (often - mean) / mean
