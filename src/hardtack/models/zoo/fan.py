"""FAN, the fully attentional network (Zhou et al. 2022), in its hybrid form, at 32 and 224 pixels.

Two stages of ConvNeXt (Liu et al. 2022) make the tokens. In each block attention first mixes tokens; then an MLP with
depthwise convolutions inside works on the channels, and what it says about a channel counts by a weight that the
image gives that channel: the second attention. Positions and the class-attention blocks at the end are XCiT's.
Parameters are named as in the authors' code, so their weights load. One thing differs: their stem's layer norm takes
the unbiased variance when its input happens to lie channels-last in memory, 0.4 % apart; here it is always the biased
one. For 32 pixels the stem cuts patches of 2 instead of 4, and its two stages go straight to the tokens: 16×16, 8×8.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    DropPath,
    PatchConvolution,
    activate,
    attend,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
    require_stages,
    start_small,
)
from hardtack.models.zoo.xcit import ClassAttentionBlock, FourierPositions, LocalPatchInteraction, read_by_class

# ---------------------------------------------------------------- the convolutional stem


class MapNorm(nn.LayerNorm):
    """Layer norm over the channels of N×width×H×W."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PointwiseMlp(nn.Module):
    """Two 1×1 convolutions: N×width×H×W to the same."""

    def __init__(self, *, width: int, activation: Activation) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, 4 * width, 1)
        self.act = activate(activation)
        self.fc2 = nn.Conv2d(4 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class ConvNextBlock(nn.Module):
    """Depthwise 7×7 convolution, norm and MLP, added to what came in: N×width×H×W to the same."""

    def __init__(self, *, width: int, activation: Activation) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = MapNorm(width)
        self.mlp = PointwiseMlp(width=width, activation=activation)
        self.gamma = nn.Parameter(torch.full((width,), 1e-6))

    def convolve(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(self.conv_dw(x))) * self.gamma[:, None, None]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolve(x)

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("convolution", self.convolve),)


class ConvNextStage(nn.Module):
    """Halve the image, unless it is the first stage, then blocks."""

    def __init__(self, *, inputs: int, width: int, depth: int, activation: Activation) -> None:
        super().__init__()
        self.downsample: nn.Module = nn.Identity()
        if inputs != width:
            self.downsample = nn.Sequential(MapNorm(inputs), nn.Conv2d(inputs, width, 2, stride=2))
        self.blocks = nn.Sequential(*(ConvNextBlock(width=width, activation=activation) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.downsample(x))


class ConvNextTrunk(nn.Module):
    """Patches, then two stages of 128 and 256 channels: N×3×H×W to N×256×h×w, smaller by 2·patch."""

    widths: ClassVar[tuple[int, int]] = (128, 256)

    def __init__(self, *, patch: int, depths: tuple[int, ...], activation: Activation) -> None:
        super().__init__()
        first, last = self.widths
        self.stem = nn.Sequential(PatchConvolution(3, first, size=patch), MapNorm(first))
        self.stages = nn.Sequential(
            ConvNextStage(inputs=first, width=first, depth=depths[0], activation=activation),
            ConvNextStage(inputs=first, width=last, depth=depths[1], activation=activation),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(self.stem(x))


class HybridEmbedding(nn.Module):
    """The trunk, then one token from each of its patches: N×3×H×W to N×h×w×width."""

    def __init__(self, *, stem_patch: int, patch: int, width: int, depths: tuple[int, ...], activation: Activation):
        super().__init__()
        self.backbone = ConvNextTrunk(patch=stem_patch, depths=depths, activation=activation)
        self.proj = PatchConvolution(ConvNextTrunk.widths[-1], width, size=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.backbone(x)).permute(0, 2, 3, 1)


# ---------------------------------------------------------------- the attentional blocks


class TokenMixing(nn.Module):
    """Multi-head self-attention over N×T×width, queries apart from keys and values."""

    attention: ClassVar[str] = "token"

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)  # N×heads×T×d
        k, v = self.kv(x).unflatten(2, (2, self.num_heads, -1)).transpose(1, 3).unbind(2)
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class ChannelWeights(nn.Module):
    """How much each channel counts, N×heads×d×1, from queries and keys N×heads×T×d.

    Queries and keys become distributions over the tokens; a channel's weight says how well its query's meets the mean
    distribution of its head's keys: temperature · sigmoid(softmax(q)ᵀ · mean(softmax(k))).
    """

    attention: ClassVar[str] = "channel"
    maps_are_output: ClassVar[bool] = True

    def forward(self, q: Tensor, k: Tensor, temperature: Tensor) -> Tensor:
        typical = k.softmax(dim=-2).mean(dim=-1, keepdim=True)  # N×heads×T×1
        return temperature * (q.softmax(dim=-2).transpose(-2, -1) @ typical).sigmoid()


class ConvolvedMlp(nn.Module):
    """Two linear layers; depthwise convolutions between them add what the neighbours say: N×H×W×width to the same."""

    def __init__(self, *, width: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.dwconv = LocalPatchInteraction(width=hidden, activation=activation)
        self.gamma = nn.Parameter(torch.ones(hidden))
        self.fc2 = nn.Linear(hidden, width)
        for convolution in (self.dwconv.conv1, self.dwconv.conv2):
            nn.init.normal_(convolution.weight, std=(2 / 9) ** 0.5)  # He's rule, from the 9 weights of a kernel
            if convolution.bias is not None:
                nn.init.zeros_(convolution.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        return self.fc2(x + self.gamma * self.dwconv(x))


class ChannelMixing(nn.Module):
    """The MLP of N×H×W×width, normed, times the weights that the input gives its channels."""

    def __init__(self, *, width: int, heads: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.num_heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.mlp_v = ConvolvedMlp(width=width, hidden=hidden, activation=activation)
        self.norm_v = nn.LayerNorm(width)
        self.q = nn.Linear(width, width)
        self.weigh = ChannelWeights()

    def forward(self, x: Tensor) -> Tensor:
        q, k = (part.flatten(1, 2).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in (self.q(x), x))
        weights = self.weigh(q, k, self.temperature).flatten(1)[:, None, None]  # N×1×1×width
        return weights.to(x.dtype) * self.norm_v(self.mlp_v(x))


class FanBlock(nn.Module):
    """Attention between tokens, then the weighted MLP, each scaled and added: N×H×W×width to the same."""

    channels_last: ClassVar[bool] = True

    def __init__(
        self, *, width: int, heads: int, hidden: int, eta: float, drop_path: float, activation: Activation
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = TokenMixing(width=width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = ChannelMixing(width=width, heads=heads, hidden=hidden, activation=activation)
        self.gamma1 = nn.Parameter(torch.full((width,), eta))
        self.gamma2 = nn.Parameter(torch.full((width,), eta))
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        return self.gamma1 * self.attn(self.norm1(x).flatten(1, 2)).unflatten(1, x.shape[1:3])

    def feed(self, x: Tensor) -> Tensor:
        return self.gamma2 * self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attend(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend), Branch("mlp", self.feed)


# ---------------------------------------------------------------- the network


class FullyAttentionalNetwork(nn.Module):
    """FAN-Hybrid: N×3×H×W to N×num_classes, H and W multiples of `patch_size`.

    A token stands for `patch_size` pixels each way: `stem_patch` cut by the stem, times 2 between its stages, the
    rest by the projection to `width`. `drop_path` is the rate of all FAN blocks alike; stem and class-attention
    blocks drop nothing. `eta` is the start value of the branch scales, `head_scale` shrinks the head's first weights.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        patch_size: int = 4,
        stem_patch: int = 2,
        stem_depths: tuple[int, ...] = (3, 3),
        width: int = 384,
        depth: int = 10,
        class_depth: int = 2,
        heads: int = 8,
        mlp_ratio: float = 4.0,
        eta: float = 1.0,
        tokens_norm: bool = True,
        drop_path: float = 0.0,
        head_scale: float = 1.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        require_positive(patch_size=patch_size, stem_patch=stem_patch, depth=depth, class_depth=class_depth)
        require_stages(stem_depths=stem_depths, stages=ConvNextTrunk.widths)
        require_positive(stem_depths=min(stem_depths))
        require_heads(width, heads)
        require_rate(drop_path=drop_path)
        if patch_size % (2 * stem_patch):
            raise UserError(
                f"with stem_patch {stem_patch} the stem shrinks images by {2 * stem_patch}, which patch_size "
                f"{patch_size} is no multiple of"
            )
        self.num_classes, self.patch_size = num_classes, patch_size
        self.patch_embed = HybridEmbedding(
            stem_patch=stem_patch, patch=patch_size // (2 * stem_patch), width=width, depths=stem_depths,
            activation=activation,
        )  # fmt: skip
        self.pos_embed = FourierPositions(width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        common: dict[str, Any] = {"width": width, "heads": heads, "hidden": require_hidden(width, mlp_ratio)}
        common |= {"eta": eta, "activation": activation}
        self.blocks = nn.ModuleList(FanBlock(drop_path=drop_path, **common) for _ in range(depth))
        self.cls_attn_blocks = nn.ModuleList(
            ClassAttentionBlock(tokens_norm=tokens_norm, **common) for _ in range(class_depth)
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        start_small(self)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.head.weight, std=0.02 * head_scale)

    def forward(self, x: Tensor) -> Tensor:
        for edge in x.shape[2:]:
            require_patches(edge, self.patch_size)
        x = self.pos_embed(self.patch_embed(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(read_by_class(x, self.cls_token, self.cls_attn_blocks)))


def _enter(size: str, **presets: Any) -> None:
    for pixels, stem_patch, patch in ((32, 2, 4), (224, 4, 16)):
        models.register(
            f"fan_{size}_hybrid_{pixels}", help=f"fully attentional network on a ConvNeXt stem, {size}",
            papers=("rspc",), patch_size=patch, stem_patch=stem_patch, **presets,
        )(FullyAttentionalNetwork)  # fmt: skip


_enter("tiny", width=192, depth=8, heads=8)
_enter("small", width=384, depth=10, heads=8)
_enter("base", width=448, depth=16, heads=8)
_enter("large", width=480, depth=22, heads=10, stem_depths=(3, 5), head_scale=0.001)
