"""Parts of a model that are not trained."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from hardtack.models.parts import chosen


def freeze(model: nn.Module, words: Sequence[str]) -> None:
    """Switch off the gradients of the parts that the words name, and set batch norms inside them to eval mode.

    The model is in train mode before. In eval mode batch norms keep their running statistics.
    """
    for parameter in chosen(model, words).values():
        parameter.requires_grad_(False)
    before: list[nn.Parameter] = []
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, nn.modules.batchnorm._NormBase):
            # a batch norm without scale and shift is frozen with the module around it, or with all layers before it
            frozen = _all_frozen(own) if own else _all_frozen(_parameters_around(model, name)) or _all_frozen(before)
            if frozen:
                module.eval()
        before += own


def _parameters_around(model: nn.Module, name: str) -> list[nn.Parameter]:
    """The parameters of the smallest module around this one that has any."""
    while name:
        name = name.rpartition(".")[0]
        parameters = list(model.get_submodule(name).parameters())
        if parameters:
            return parameters
    return []


def _all_frozen(parameters: Sequence[nn.Parameter]) -> bool:
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
