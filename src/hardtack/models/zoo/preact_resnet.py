"""Residual networks with activations before the convolutions (He et al. 2016, "Identity mappings").

The PreActResNet-18 of the adversarial-training literature: normalise and rectify first, then convolve, so that
the shortcut path is a sum and nothing else. For small images, 3×3 stem, any size; blocks that change shape project
the activated input. Paper 3's network averages the last sum as it is, without a last normalisation and activation.
The 224-pixel one is timm's.
"""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, DropPath, activate, require_positive
from hardtack.models.zoo.resnet import convolution, initialise_convolutions, steps


class PreActBlock(nn.Module):
    """Two 3×3 convolutions, or with `bottleneck` 1×1, 3×3 and 1×1 to four times the width, each behind its
    normalisation and activation: N×inputs×H×W to N×outputs×H/stride×W/stride. `dropout` precedes the second."""

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        stride: int,
        bottleneck: bool = False,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.outputs = 4 * width if bottleneck else width
        first, second = ((1, 1), (3, stride)) if bottleneck else ((3, stride), (3, 1))  # kernel and stride
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, width, kernel=first[0], stride=first[1])
        self.norm2, self.conv2 = nn.BatchNorm2d(width), convolution(width, width, kernel=second[0], stride=second[1])
        self.norm3 = nn.BatchNorm2d(width) if bottleneck else None
        self.conv3 = convolution(width, self.outputs, kernel=1) if bottleneck else None
        changes = stride != 1 or inputs != self.outputs
        self.shortcut = convolution(inputs, self.outputs, kernel=1, stride=stride) if changes else None
        self.act, self.dropout, self.drop_path = activate(activation), nn.Dropout(dropout), DropPath(rate=drop_path)

    def activated(self, x: Tensor) -> Tensor:
        return self.act(self.norm1(x))

    def convolved(self, active: Tensor) -> Tensor:
        x = self.conv2(self.dropout(self.act(self.norm2(self.conv1(active)))))
        return x if self.norm3 is None or self.conv3 is None else self.conv3(self.act(self.norm3(x)))

    def forward(self, x: Tensor) -> Tensor:
        active = self.activated(x)
        kept = x if self.shortcut is None else self.shortcut(active)
        return self.drop_path(self.convolved(active)) + kept

    def branches(self) -> tuple[Branch, ...]:
        shortcut = self.shortcut
        kept = None if shortcut is None else lambda x: shortcut(self.activated(x))
        return (Branch("convolution", lambda x: self.convolved(self.activated(x)), identity=kept),)


@models.register(
    "preactresnet.arg", help="paper 3's residual network with pre-activation", papers=("arg",), depths=(3, 4, 6, 3),
    bottleneck=True, final_norm=False,
)  # fmt: skip
@models.register(
    "preact_resnet50_cifar", help="residual network with pre-activation, bottleneck blocks", depths=(3, 4, 6, 3),
    bottleneck=True,
)  # fmt: skip
@models.register("preact_resnet18_cifar", help="residual network with pre-activation", depths=(2, 2, 2, 2))
class PreActResNet(nn.Module):
    """Pre-activation residual network: N×3×H×W to N×num_classes; stage `i` is `width · 2^i` wide.

    Without `final_norm` the last sum is averaged as it is, neither normalised nor activated.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        depths: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        bottleneck: bool = False,
        final_norm: bool = True,
        drop_path: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        require_positive(width=width)
        self.num_classes = num_classes
        self.stem = convolution(3, width, kernel=3)
        channels, blocks = width, []
        for stage, stride, rate in steps(depths, drop_path):
            block = PreActBlock(
                channels, width * 2**stage, stride=stride, bottleneck=bottleneck, drop_path=rate, activation=activation
            )
            blocks.append(block)
            channels = block.outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels) if final_norm else None
        self.act = activate(activation)
        self.head = nn.Linear(channels, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        x = x if self.norm is None else self.act(self.norm(x))
        return self.head(x.mean((-2, -1)))


@models.register(
    "preact_resnet50_224", help="residual network with pre-activation for ImageNet", published="resnetv2_50"
)
def preact_resnet50_224(
    *, num_classes: int = 1000, drop_path: float = 0.0, activation: Activation = "relu"
) -> nn.Module:
    return from_timm("resnetv2_50", num_classes=num_classes, drop_path=drop_path, activation=activation)
