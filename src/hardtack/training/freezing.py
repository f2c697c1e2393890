"""Parts of a model that training leaves alone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from hardtack.models.parts import chosen


def freeze(model: nn.Module, words: Sequence[str]) -> None:
    """No gradients for what the words mean; batch norms that lie in it keep their statistics, too.

    Called on a model in train mode: it switches those batch norms to eval.
    """
    for parameter in chosen(model, words).values():
        parameter.requires_grad_(False)
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, nn.modules.batchnorm._NormBase) and own and not any(p.requires_grad for p in own):
            module.eval()
