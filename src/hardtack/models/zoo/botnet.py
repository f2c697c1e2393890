"""BoTNet, a ResNet whose last stage attends instead of convolving (Srinivas et al. 2021).

In the last stage of ResNet-50 every 3×3 convolution becomes self-attention over all places of the map, with learned
terms for the distance between rows and between columns; a block that halves the map pools behind its attention. On a
small stem (3×3, no pooling) 32-pixel images make 8×8 and then 4×4 tokens; the 224-pixel form has the paper's stem,
14×14 and then 7×7 tokens.

Paper 3's network is taken to be a public PyTorch form (`plain`), which differs: rows and columns have absolute
embeddings, one set per head; scores are not scaled; the position of the query meets the query vector of the key's place
(r_i·q_j where the paper has q_i·r_(j−i)); attention and shortcuts have biases; and dropout comes before the classifier.
Its printed parameters fit the 7×7 stem (18,822,474) as well as the 3×3 stem (18,827,082); here it has the 3×3 stem,
since the other leaves 2×2 and 1×1 tokens of a 32-pixel image.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    DropPath,
    activate,
    attend,
    require_heads,
    require_positive,
    require_rate,
)
from hardtack.models.zoo.resnet import (
    ResidualBlock,
    as_identity,
    convolution,
    initialise_convolutions,
    projection,
    steps,
)


class PlaceAttention(nn.Module):
    """Self-attention between the places of a map, with positions: N×width×grid×grid to the same."""

    attention: ClassVar[str] = "token"

    def __init__(self, *, width: int, heads: int, grid: int, plain: bool = False) -> None:
        super().__init__()
        self.num_heads, self.grid, self.plain = heads, grid, plain
        head_width = width // heads
        self.scale = 1.0 if plain else head_width**-0.5
        self.qkv = nn.Linear(width, 3 * width, bias=plain)
        # one embedding for each distance, −(grid − 1) to grid − 1, shared by the heads; or for each place and head
        shape = (heads, grid, head_width) if plain else (2 * grid - 1, head_width)
        self.rows = nn.Parameter(torch.empty(shape))
        self.columns = nn.Parameter(torch.empty(shape))
        for positions in (self.rows, self.columns):
            nn.init.normal_(positions, std=1.0 if plain else head_width**-0.5)
        if not plain:
            nn.init.normal_(self.qkv.weight, std=width**-0.5)

    def by_distance(self, q: Tensor) -> Tensor:
        """q_i·(row of j − row of i) + q_i·(column of j − column of i), N×heads×T×T for N×heads×T×d."""
        q = q.unflatten(2, (self.grid, self.grid))
        # window s of the table holds distances s − (grid − 1) onwards; place y starts from distance −y
        rows = self.rows.unfold(0, self.grid, 1).flip(0)  # grid×d×grid: y, ·, y'
        columns = self.columns.unfold(0, self.grid, 1).flip(0)
        down = torch.einsum("nhyxd,ydz->nhyxz", q, rows)
        across = torch.einsum("nhyxd,xdz->nhyxz", q, columns)
        return (down.unsqueeze(-1) + across.unsqueeze(-2)).flatten(4).flatten(2, 3)

    def by_place(self, q: Tensor) -> Tensor:
        """r_i·q_j, N×heads×T×T for N×heads×T×d."""
        places = (self.rows.unsqueeze(2) + self.columns.unsqueeze(1)).flatten(1, 2)
        return places @ q.transpose(-2, -1)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x.flatten(2).transpose(1, 2)).unflatten(2, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.by_place(q) if self.plain else self.by_distance(q * self.scale)
        return attend(q, k, v, bias=bias, scale=self.scale).transpose(2, 3).reshape(x.shape)


class AttentionBlock(nn.Module):
    """A bottleneck that attends in the middle: N×inputs×grid×grid to N×outputs×(grid/stride)×(grid/stride)."""

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        stride: int,
        heads: int,
        grid: int,
        plain: bool = False,
        drop_path: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.outputs = 4 * width
        self.reduce = nn.Sequential(convolution(inputs, width, kernel=1), nn.BatchNorm2d(width), activate(activation))
        self.attn = PlaceAttention(width=width, heads=heads, grid=grid, plain=plain)
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.expand = nn.Sequential(
            nn.BatchNorm2d(width), activate(activation), convolution(width, self.outputs, kernel=1),
            nn.BatchNorm2d(self.outputs),
        )  # fmt: skip
        self.shortcut = projection(inputs, self.outputs, stride=stride, bias=plain)
        self.act = activate(activation)
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        return self.expand(self.pool(self.attn(self.reduce(x))))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop_path(self.attend(x)) + self.shortcut(x))

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("attention", self.attend, identity=as_identity(self.shortcut), after=self.act),)


@models.register(
    "botnet.arg", help="paper 3's ResNet with attention in the last stage", papers=("arg",), plain=True, dropout=0.3
)
@models.register(
    "botnet50_224", help="ResNet-50 with attention in the last stage, for ImageNet", image_size=224, large_stem=True
)
@models.register("botnet50_cifar", help="ResNet-50 with attention in the last stage")
class BoTNet(nn.Module):
    """ResNet with attention in its last stage: N×3×image_size×image_size to N×num_classes.

    Stage `i` has `depths[i]` bottlenecks of width `width · 2^i`. `large_stem` is 7×7 with stride 2 and max-pooling.
    `plain` is the form that paper 3's count points to; `dropout` comes before the classifier.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        depths: tuple[int, ...] = (3, 4, 6, 3),
        width: int = 64,
        heads: int = 4,
        large_stem: bool = False,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        activation: Activation = "relu",
        plain: bool = False,
    ) -> None:
        super().__init__()
        require_positive(width=width, image_size=image_size)
        require_rate(dropout=dropout)
        plan, last = steps(depths, drop_path), len(depths) - 1
        require_heads(width * 2**last, heads)
        shrinks = (4 if large_stem else 1) * 2**last
        if image_size % shrinks:
            raise UserError(f"image_size {image_size} is no multiple of {shrinks}, by which the network shrinks images")
        self.num_classes, self.image_size = num_classes, image_size
        first = convolution(3, width, kernel=7 if large_stem else 3, stride=2 if large_stem else 1)
        pool = nn.MaxPool2d(3, stride=2, padding=1) if large_stem else nn.Identity()
        self.stem = nn.Sequential(first, nn.BatchNorm2d(width), activate(activation), pool)
        channels, grid = width, image_size // (4 if large_stem else 1)
        blocks: list[ResidualBlock | AttentionBlock] = []
        for stage, stride, rate in plan:
            if stage < last:
                blocks.append(ResidualBlock(
                    channels, width * 2**stage, stride=stride, expansion=4, shortcut_bias=plain, drop_path=rate,
                    activation=activation,
                ))  # fmt: skip
            else:
                blocks.append(AttentionBlock(
                    channels, width * 2**stage, stride=stride, heads=heads, grid=grid, plain=plain, drop_path=rate,
                    activation=activation,
                ))  # fmt: skip
            channels, grid = blocks[-1].outputs, grid // stride
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(self.dropout(x.mean((-2, -1))))
