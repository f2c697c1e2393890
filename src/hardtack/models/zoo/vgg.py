"""VGG, plain stacks of 3×3 convolutions (Simonyan & Zisserman 2015), with batch normalisation.

For small images the three wide linear layers of the paper give way to one on the averaged last map, as everybody does
on CIFAR; paper 3 trains the same network. Each stage ends by halving the image, odd sizes upwards, so that any size
works. The 224-pixel one, with the wide layers, is timm's.
"""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, activate
from hardtack.models.zoo.resnet import convolution, initialise_convolutions


class PlainBlock(nn.Module):
    """A 3×3 convolution, normalised and activated: N×inputs×H×W to N×outputs×H×W. Nothing is added to the input."""

    def __init__(self, inputs: int, outputs: int, *, activation: Activation = "relu") -> None:
        super().__init__()
        self.conv = convolution(inputs, outputs, kernel=3, bias=True)
        self.norm = nn.BatchNorm2d(outputs)
        self.act = activate(activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))

    def branches(self) -> tuple[Branch, ...]:
        return ()


@models.register("vgg.arg", help="paper 3's plain convolutional network", papers=("arg",))
@models.register("vgg16_bn_cifar", help="plain convolutional network")
class VGG(nn.Module):
    """Plain convolutional network: N×3×H×W to N×num_classes; stage `i` has `depths[i]` layers, `widths[i]` wide."""

    def __init__(
        self,
        *,
        num_classes: int = 10,
        widths: tuple[int, ...] = (64, 128, 256, 512, 512),
        depths: tuple[int, ...] = (2, 2, 3, 3, 3),
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if not depths or len(widths) != len(depths) or min(*widths, *depths) < 1:
            raise UserError(
                f"a VGG needs a width and a depth of at least 1 for every stage; found {widths=}, {depths=}"
            )
        self.num_classes = num_classes
        channels = 3
        layers: list[nn.Module] = []
        for width, depth in zip(widths, depths, strict=True):
            for _ in range(depth):
                layers.append(PlainBlock(channels, width, activation=activation))
                channels = width
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(channels, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((-2, -1)))


@models.register("vgg16_bn_224", help="plain convolutional network for ImageNet", published="vgg16_bn")
def vgg16_bn_224(*, num_classes: int = 1000, activation: Activation = "relu") -> nn.Module:
    return from_timm("vgg16_bn", num_classes=num_classes, activation=activation)
