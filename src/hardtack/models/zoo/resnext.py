"""ResNeXt, residual networks with grouped convolutions (Xie et al. 2017).

ResNeXt-29 for small images: three stages of three bottlenecks, any image size. `2x64d` reads: two groups, 64 channels
each in the first stage, twice as many in each later one. The stem is the paper's 3×3 convolution; paper 3's network
has a 1×1 stem, as in the public CIFAR code that its parameter count points to. The 224-pixel one is timm's.
"""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, activate, require_positive
from hardtack.models.zoo.resnet import ResidualBlock, convolution, initialise_convolutions, steps

STEM_WIDTH = 64


@models.register(
    "resnext.arg", help="paper 3's residual network with grouped convolutions", papers=("arg",), stem_kernel=1
)
@models.register("resnext29_2x64d_cifar", help="residual network with grouped convolutions")
class ResNeXt(nn.Module):
    """Residual network with grouped convolutions: N×3×H×W to N×num_classes.

    The 3×3 convolutions of stage `i` have `cardinality` groups of `width · 2^i` channels each; a block gives twice
    as many channels as they have together.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        depths: tuple[int, ...] = (3, 3, 3),
        cardinality: int = 2,
        width: int = 64,
        stem_kernel: int = 3,
        drop_path: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        require_positive(width=width, cardinality=cardinality, stem_kernel=stem_kernel)
        if stem_kernel % 2 == 0:
            raise UserError(f"stem_kernel must be odd to keep the image's size, found {stem_kernel}")
        self.num_classes = num_classes
        self.stem = nn.Sequential(
            convolution(3, STEM_WIDTH, kernel=stem_kernel), nn.BatchNorm2d(STEM_WIDTH), activate(activation)
        )
        channels, blocks = STEM_WIDTH, []
        for stage, stride, rate in steps(depths, drop_path):
            block = ResidualBlock(
                channels, cardinality * width * 2**stage, stride=stride, expansion=2, groups=cardinality,
                drop_path=rate, activation=activation,
            )  # fmt: skip
            blocks.append(block)
            channels = block.outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(x.mean((-2, -1)))


@models.register(
    "resnext50_32x4d_224", help="residual network with grouped convolutions for ImageNet", published="resnext50_32x4d"
)
def resnext50_32x4d_224(
    *, num_classes: int = 1000, drop_path: float = 0.0, activation: Activation = "relu"
) -> nn.Module:
    return from_timm("resnext50_32x4d", num_classes=num_classes, drop_path=drop_path, activation=activation)
