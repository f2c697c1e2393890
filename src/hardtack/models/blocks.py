"""Where a network's blocks are, and which modules attend in them.

A block of our own has a method `branches()`; those of timm and torchvision are known by name; anybody else's are
recognised by their shape: a module with an attention child (`attn`, `self_attention`, …) beside a norm or an MLP.
Of blocks within blocks the innermost count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.branches import Branch, branches_of, is_known

Kind = Literal["token", "window", "reduced", "class", "channel"]

_ATTENTION_NAMES = ("attn", "self_attn", "attention", "self_attention")
_BLOCK_SIGNS = ("norm", "ln", "layernorm", "mlp", "ffn")
_KINDS: dict[str, Kind] = {
    "WindowAttention": "window",
    "ShiftedWindowAttention": "window",
    "ShiftedWindowAttentionV2": "window",
    "ClassAttn": "class",
    "ClassAttention": "class",
    "XCA": "channel",
    "pvt_v2.Attention": "reduced",
    "levit.AttentionDownsample": "reduced",
}
_WITHOUT_MAPS = ("SqueezeExcite", "SEModule", "EffectiveSE", "Identity", "Pooling")


@dataclass(frozen=True)
class Attending:
    """A module that attends. `kind`: between all tokens, tokens of a window, tokens and a coarser grid of them, from
    the class token alone, or between channels. `says`: its output are the weights themselves."""

    name: str
    module: nn.Module
    kind: Kind
    says: bool = False


@dataclass(frozen=True)
class Block:
    name: str
    module: nn.Module
    attending: tuple[Attending, ...]

    def __repr__(self) -> str:
        kinds = ", ".join(branch.kind for branch in self.branches) or "none known"
        attention = ", ".join(attending.kind for attending in self.attending) or "none"
        return f"Block({self.name}: {type(self.module).__name__}, branches: {kinds}, attention: {attention})"

    @property
    def branches(self) -> tuple[Branch, ...]:
        return branches_of(self.module)

    def channels_last(self, shape: Sequence[int]) -> bool:
        """Whether a map of this block, of this shape, is N×H×W×D: it says so, or one of its layer norms is as wide."""
        if hasattr(self.module, "channels_last"):
            return bool(self.module.channels_last)
        norms = [module for module in self.module.modules() if isinstance(module, nn.LayerNorm)]
        first, last = (any(norm.normalized_shape[-1] == side for norm in norms) for side in (shape[1], shape[-1]))
        return last and (not first or type(self.module).__name__.startswith("SwinTransformer"))


def class_name(model: nn.Module) -> str:
    """Of the network, without the wrapper around it."""
    return type(getattr(model, "body", model)).__name__


def find_blocks(model: nn.Module) -> list[Block]:
    """The blocks of a network, in order of definition: transformer blocks, residual blocks, stages."""
    if not isinstance(model, nn.Module):
        raise UserError(f"blocks are those of a model, found {type(model).__name__}; ht.load_model(NAME) makes one")
    found = {name: module for name, module in model.named_modules() if _is_block(module)}
    if type(getattr(model, "body", model)).__module__ == "timm.models.vgg":  # its five stages end in a pool
        found = {name: module for name, module in model.named_modules() if isinstance(module, nn.MaxPool2d)}
    inside = {id(part): name for name, module in found.items() for part in module.modules() if part is not module}
    outer = {inside[id(module)] for module in found.values() if id(module) in inside}
    blocks = []
    for name, module in found.items():
        if name not in outer:
            blocks.append(Block(name, module, tuple(_attending(name, module))))
    return blocks


def _is_block(module: nn.Module) -> bool:
    if callable(getattr(module, "branches", None)) or is_known(module):
        return True
    children = dict(module.named_children())
    return any(word in children for word in _ATTENTION_NAMES) and any(
        child.startswith(_BLOCK_SIGNS) for child in children
    )


def _attending(name: str, block: nn.Module) -> list[Attending]:
    said = [
        Attending(f"{name}.{inner}", module, module.attention, getattr(module, "maps_are_output", False))
        for inner, module in block.named_modules()
        if isinstance(getattr(module, "attention", None), str)
    ]
    if said or callable(getattr(block, "branches", None)):
        return said
    return [
        Attending(f"{name}.{word}", module, _kind(module))
        for word, module in block.named_modules()
        if _attends(word, module)
    ]


def _attends(word: str, module: nn.Module) -> bool:
    named = word in (*_ATTENTION_NAMES, "attn_downsample")
    named = named or (word == "token_mixer" and "Attention" in type(module).__name__)
    return named and not type(module).__name__.startswith(_WITHOUT_MAPS) and any(True for _ in module.parameters())


def _kind(module: nn.Module) -> Kind:
    name = type(module).__name__
    full = f"{type(module).__module__.rpartition('.')[2]}.{name}"
    if "Channel" in name:
        return "channel"
    return next((kind for part, kind in _KINDS.items() if part in (full, name)), "token")
