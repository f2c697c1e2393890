"""DenseNet, whose layers append to what came before instead of adding to it (Huang et al. 2017).

The form with bottlenecks and compression (DenseNet-BC) on a small stem: a 3×3 convolution and no pooling. Four dense
blocks as for ImageNet, where the paper's own CIFAR networks have three. Of paper 3 only the printed 1.12 M parameters
are known; growth 12 with four times sixteen layers gives 1,121,860 and is the likeliest reading, not the only one.
The 224-pixel one is timm's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, activate, require_positive
from hardtack.models.zoo.resnet import convolution


class DenseLayer(nn.Module):
    """`growth` new channels behind those that came in: N×inputs×H×W to N×(inputs + growth)×H×W."""

    def __init__(self, inputs: int, *, growth: int, bottleneck: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, bottleneck * growth, kernel=1)
        self.norm2, self.conv2 = nn.BatchNorm2d(bottleneck * growth), convolution(bottleneck * growth, growth, kernel=3)
        self.act = activate(activation)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(self.act(self.norm1(x)))
        return torch.cat([x, self.conv2(self.act(self.norm2(new)))], dim=1)

    def branches(self) -> tuple[Branch, ...]:
        return ()  # nothing is added to x: it is passed on beside the new channels


class Transition(nn.Module):
    """Fewer channels on a map half as large, between two dense blocks."""

    def __init__(self, inputs: int, outputs: int, *, activation: Activation = "relu") -> None:
        super().__init__()
        self.norm, self.act = nn.BatchNorm2d(inputs), activate(activation)
        self.conv, self.pool = convolution(inputs, outputs, kernel=1), nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(self.act(self.norm(x))))


@models.register(
    "densenet.arg", help="paper 3's densely connected network", papers=("arg",), depths=(16, 16, 16, 16), growth=12
)
@models.register("densenet121_cifar", help="densely connected network", depths=(6, 12, 24, 16), growth=32)
class DenseNet(nn.Module):
    """Densely connected network: N×3×H×W to N×num_classes.

    `depths` are the layers of each dense block, each adding `growth` channels to `width` at the start (None: twice the
    growth). `bottleneck` · `growth` channels lie between the two convolutions of a layer; `compression` is the share
    of channels that a transition passes on.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        depths: tuple[int, ...] = (6, 12, 24, 16),
        growth: int = 32,
        width: int | None = None,
        bottleneck: int = 4,
        compression: float = 0.5,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        channels = 2 * growth if width is None else width
        require_positive(growth=growth, width=channels, bottleneck=bottleneck)
        if not depths or min(depths) < 1:
            raise UserError(f"depths must name at least one layer for every dense block, found {depths}")
        if not 0.0 < compression <= 1.0:
            raise UserError(f"compression must lie in (0, 1], found {compression}")
        self.num_classes = num_classes
        self.stem = convolution(3, channels, kernel=3)
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                kept = max(int(channels * compression), 1)
                layers.append(Transition(channels, kept, activation=activation))
                channels = kept
            for _ in range(depth):
                layers.append(DenseLayer(channels, growth=growth, bottleneck=bottleneck, activation=activation))
                channels += growth
        self.blocks = nn.Sequential(*layers)
        self.norm, self.act = nn.BatchNorm2d(channels), activate(activation)
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # by what comes in: a layer sees hundreds of channels and adds a few, which fan-out would blow up
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean((-2, -1)))


@models.register("densenet121_224", help="densely connected network for ImageNet", published="densenet121")
def densenet121_224(*, num_classes: int = 1000, activation: Activation = "relu") -> nn.Module:
    return from_timm("densenet121", num_classes=num_classes, activation=activation)
