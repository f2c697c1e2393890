"""timm's networks under our knobs, for the families whose true form is timm's."""

from __future__ import annotations

from typing import Any

from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.zoo.layers import Activation, activate, require_rate


def from_timm(
    name: str,
    *,
    num_classes: int,
    image_size: int | None = None,
    drop_path: float = 0.0,
    activation: Activation | None = None,
    **options: Any,
) -> nn.Module:
    """timm's `name` without its weights. `image_size` and `activation` None leave what timm has."""
    import timm

    require_rate(drop_path=drop_path)
    given = options | ({} if image_size is None else {"img_size": image_size})
    given |= {"drop_path_rate": drop_path} if drop_path else {}
    # timm's own classes: its networks ask for activations in place, which torch's GELU does not know
    given |= {} if activation is None else {"act_layer": timm.layers.get_act_layer(activation)}
    try:
        return timm.create_model(name, pretrained=False, num_classes=num_classes, **given)
    except (AssertionError, RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"it cannot be built with {given}: {reason}") from error


def set_activation(model: nn.Module, activation: Activation | None) -> None:
    """Put `activation` in place of every other, for the networks of timm that take no `act_layer`, or not for all.

    None leaves what timm has; sigmoid gates stay.
    """
    if activation is None:
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ in ("GELU", "GELUTanh", "ReLU", "SiLU", "Tanh"):  # torch's, or timm's of that name
                setattr(module, name, activate(activation))
