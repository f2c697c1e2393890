"""The residual branches of a block: what it adds to its input, so that a Jacobian can be taken with or without x.

A block of our own says what they are (`branches()`). Those of timm and torchvision are read by the names of their
parts. Applied one after another, branches are the block in eval mode; a test holds every model to that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Branch:
    """x ↦ after(identity(x) + function(x)), in eval mode. None stands for x itself, and for nothing after."""

    kind: str  # attention, mlp, convolution, pooling, …; parallel ones as attention+convolution
    function: Function
    identity: Function | None = None
    after: Function | None = None

    def __call__(self, x: Tensor) -> Tensor:
        out = (x if self.identity is None else self.identity(x)) + self.function(x)
        return out if self.after is None else self.after(out)


def branches_of(block: nn.Module) -> tuple[Branch, ...]:
    """The branches of a block, in order; none where it has no residual, or nobody knows them."""
    if hasattr(block, "branches"):
        return block.branches()  # type: ignore[operator]
    if isinstance(block, nn.TransformerEncoderLayer):
        return _encoder_layer(block)
    steps = _known(block)
    if not steps or any(step.needs and getattr(block, step.needs, None) is None for step in steps):
        return ()
    return tuple(step.read(block) for step in steps)


def is_known(block: nn.Module) -> bool:
    """Whether this is a block of timm's or torchvision's that the table below names."""
    return _known(block) is not None


# ---------------------------------------------------------------- blocks of others


def _encoder_layer(layer: nn.TransformerEncoderLayer) -> tuple[Branch, ...]:
    """torch's own: normalised before its branches, or after each sum."""

    def attend(x: Tensor) -> Tensor:
        return layer.self_attn(x, x, x, need_weights=False)[0]

    def feed(x: Tensor) -> Tensor:
        return layer.linear2(layer.activation(layer.linear1(x)))

    if layer.norm_first:
        return (
            Branch("attention", lambda x: attend(layer.norm1(x))),
            Branch("mlp", lambda x: feed(layer.norm2(x))),
        )
    return Branch("attention", attend, after=layer.norm1), Branch("mlp", feed, after=layer.norm2)


@dataclass(frozen=True)
class _Step:
    """One branch by attribute names, applied in order. Names a block does not have, or that are None, are left out."""

    kind: str
    path: str
    identity: str = ""
    after: str = ""
    needs: str = ""  # without it the block has no residual

    def read(self, block: nn.Module) -> Branch:
        identity = self.identity
        if identity.endswith("downsample") and getattr(block, "downsample", None) is None:
            identity = ""
        return Branch(
            _mixes(block.token_mixer) if self.kind == "token_mixer" else self.kind,
            functools.partial(_apply, block, self.path.split()),
            functools.partial(_apply, block, identity.split()) if identity else None,
            functools.partial(_apply, block, self.after.split()) if self.after else None,
        )


def _mixes(mixer: Any) -> str:
    """How a MetaFormer's block mixes its tokens: the family differs in nothing else."""
    name = type(mixer).__name__
    return "attention" if "Attention" in name else "pooling" if "Pool" in name else "convolution"


def _apply(block: nn.Module, names: list[str], x: Tensor) -> Tensor:
    for name in names:
        part: Any = getattr(block, name, None)
        if part is None:
            continue
        if isinstance(part, nn.Parameter):
            x = x * part
        elif isinstance(part, nn.MultiheadAttention):
            x = part(x, x, x, need_weights=False)[0]
        elif type(part).__module__ == "timm.models.pvt_v2":  # wants the grid; tokens fill a square
            side = math.isqrt(x.shape[1])
            x = part(x, (side, side))
        else:
            x = part(x)
    return x


def _known(block: nn.Module) -> tuple[_Step, ...] | None:
    kind = type(block)
    library, _, file = kind.__module__.partition(".")
    if library not in ("timm", "torchvision"):
        return None
    full = f"{file.rpartition('.')[2]}.{kind.__name__}"
    return next((_BLOCKS[key] for key in (f"{library}:{full}", full, kind.__name__) if key in _BLOCKS), None)


_PRE_NORM = (_Step("attention", "norm1 attn ls1 gamma_1"), _Step("mlp", "norm2 mlp ls2 gamma_2"))

# An empty row: a block whose features are worth having, but not a sum of its input and branches of it alone.
_BLOCKS: dict[str, tuple[_Step, ...]] = {
    "vision_transformer.Block": _PRE_NORM,
    "convit.Block": _PRE_NORM,
    "pvt_v2.Block": _PRE_NORM,
    "cait.LayerScaleBlock": _PRE_NORM,
    "timm:swin_transformer.SwinTransformerBlock": (_Step("attention", "norm1 _attn"), _Step("mlp", "norm2 mlp")),
    "torchvision:swin_transformer.SwinTransformerBlock": _PRE_NORM,
    "vision_transformer.EncoderBlock": (_Step("attention", "ln_1 self_attention"), _Step("mlp", "ln_2 mlp")),
    "MetaFormerBlock": (
        _Step("token_mixer", "norm1 token_mixer layer_scale1", identity="res_scale1"),
        _Step("mlp", "norm2 mlp layer_scale2", identity="res_scale2"),
    ),
    "LevitBlock": (_Step("attention", "attn"), _Step("mlp", "mlp")),
    "TransformerBlock2d": (
        _Step("attention", "norm1 attn ls1", identity="shortcut"),
        _Step("mlp", "norm2 mlp ls2"),
    ),
    "maxxvit.MbConvBlock": (
        _Step(
            "convolution",
            "pre_norm down conv1_1x1 norm1 conv2_kxk se_early norm2 se conv3_1x1",
            identity="shortcut",
        ),
    ),
    "byobnet.BottleneckBlock": (
        _Step(
            "convolution",
            "conv1_1x1 conv2_kxk conv2b_kxk attn conv3_1x1 attn_last",
            identity="shortcut",
            after="act",
            needs="shortcut",
        ),
    ),
    "resnet.BasicBlock": (
        _Step("convolution", "conv1 bn1 relu act1 aa conv2 bn2 se", identity="downsample", after="relu act2"),
    ),
    "resnet.Bottleneck": (
        _Step(
            "convolution",
            "conv1 bn1 relu act1 conv2 bn2 relu act2 aa conv3 bn3 se",
            identity="downsample",
            after="relu act3",
        ),
    ),
    "PreActBottleneck": (_Step("convolution", "norm1 conv1 norm2 conv2 norm3 conv3", identity="norm1 downsample"),),
    "DenseLayer": (),
    "LevitDownsample": (),
    "LayerScaleBlockClassAttn": (),
    "XCABlock": (),
    "ClassAttentionBlock": (),
    "ConvNeXtBlock": (),
}
