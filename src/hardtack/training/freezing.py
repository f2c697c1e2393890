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
    before: list[nn.Parameter] = []
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, nn.modules.batchnorm._NormBase):
            # one without scale and shift lies in what holds it, or behind all that is frozen before it
            frozen = _all_frozen(own) if own else _all_frozen(_holders(model, name)) or _all_frozen(before)
            if frozen:
                module.eval()
        before += own


def _holders(model: nn.Module, name: str) -> list[nn.Parameter]:
    """The parameters of the smallest module around this one that has any."""
    while name:
        name = name.rpartition(".")[0]
        found = list(model.get_submodule(name).parameters())
        if found:
            return found
    return []


def _all_frozen(parameters: Sequence[nn.Parameter]) -> bool:
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
