"""Wide residual networks (Zagoruyko & Komodakis 2016): pre-activation blocks, few and wide, for small images.

WRN-28-10 and WRN-34-10 are the large networks of the adversarial-training literature. Dropout stands between the two
convolutions of a block, as in the paper, and is off unless asked for. Paper 3's parameter count is that of a public
PyTorch form (`plain`), in which every convolution has a bias, the second one of a block strides, and shortcuts project
the input itself instead of its activation. The 224-pixel network is another architecture by the same name, a ResNet-50
with bottlenecks twice as wide; it is timm's.
"""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, DropPath, activate, require_positive, require_rate
from hardtack.models.zoo.preact_resnet import PreActBlock
from hardtack.models.zoo.resnet import as_identity, convolution, initialise_convolutions, steps

STEM_WIDTH = 16


class PlainBlock(nn.Module):
    """The block of the `plain` form: N×inputs×H×W to N×width×H/stride×W/stride."""

    def __init__(
        self, inputs: int, width: int, *, stride: int, dropout: float, drop_path: float, activation: Activation
    ) -> None:
        super().__init__()
        self.outputs = width
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, width, kernel=3, bias=True)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), convolution(width, width, kernel=3, stride=stride, bias=True)
        changes = stride != 1 or inputs != width
        self.shortcut = convolution(inputs, width, kernel=1, stride=stride, bias=True) if changes else nn.Identity()
        self.act, self.dropout, self.drop_path = activate(activation), nn.Dropout(dropout), DropPath(rate=drop_path)

    def convolve(self, x: Tensor) -> Tensor:
        x = self.dropout(self.conv1(self.act(self.norm1(x))))
        return self.conv2(self.act(self.norm2(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_path(self.convolve(x)) + self.shortcut(x)

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("convolution", self.convolve, identity=as_identity(self.shortcut)),)


@models.register(
    "wideresnet.arg", help="paper 3's wide residual network", papers=("arg",), depth=40, widening=10, plain=True
)
@models.register("wrn16_4_cifar", help="wide residual network, small", depth=16, widening=4)
@models.register("wrn34_10_cifar", help="wide residual network, large", depth=34, widening=10)
@models.register("wrn28_10_cifar", help="wide residual network", depth=28, widening=10)
class WideResNet(nn.Module):
    """Wide residual network: N×3×H×W to N×num_classes.

    Three stages, 16, 32 and 64 times `widening` channels wide, share the `depth` layers: 6n + 4 of them, for n blocks
    a stage. `plain` is the form that paper 3's count points to.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        depth: int = 28,
        widening: int = 10,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        activation: Activation = "relu",
        plain: bool = False,
    ) -> None:
        super().__init__()
        require_positive(widening=widening)
        require_rate(dropout=dropout)
        if depth < 10 or depth % 6 != 4:
            raise UserError(f"depth must be 6n + 4 for n blocks a stage (10, 16, 22, 28, …), found {depth}")
        self.num_classes = num_classes
        self.stem = convolution(3, STEM_WIDTH, kernel=3, bias=plain)
        channels, blocks, kind = STEM_WIDTH, [], PlainBlock if plain else PreActBlock
        for stage, stride, rate in steps(((depth - 4) // 6,) * 3, drop_path):
            block = kind(
                channels, STEM_WIDTH * widening * 2**stage, stride=stride, dropout=dropout, drop_path=rate,
                activation=activation,
            )  # fmt: skip
            blocks.append(block)
            channels = block.outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.act = nn.BatchNorm2d(channels), activate(activation)
        self.head = nn.Linear(channels, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean((-2, -1)))


@models.register(
    "wide_resnet50_2_224", help="ResNet-50 with wide bottlenecks, for ImageNet", papers=("xcit",),
    published="wide_resnet50_2",
)  # fmt: skip
def wide_resnet50_2_224(
    *, num_classes: int = 1000, drop_path: float = 0.0, activation: Activation = "relu"
) -> nn.Module:
    return from_timm("wide_resnet50_2", num_classes=num_classes, drop_path=drop_path, activation=activation)
