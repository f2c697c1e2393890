"""Residual networks (He et al. 2016). For small images: 3×3 stem, no max-pooling, any image size.

`resnet18_cifar` and `resnet50_cifar` are the wide ImageNet bodies on a CIFAR stem, as the robustness literature uses
them; bottlenecks stride in their 3×3 convolution, not in the first 1×1 as in the paper. `resnet8_cifar` and
`resnet20_cifar` are the three-stage CIFAR networks, with projections where the paper pads with zeros. The 224-pixel
ones are timm's. What the kin of this family (pre-activation, wide, grouped, with attention) share stands here too.
"""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, DropPath, activate, ramp, require_positive, require_rate


def convolution(
    inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=bias)


def projection(inputs: int, outputs: int, *, stride: int, bias: bool = False) -> nn.Module:
    """The shortcut past a block: nothing where shapes agree, else a normalised 1×1 convolution."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, kernel=1, stride=stride, bias=bias), nn.BatchNorm2d(outputs))


def as_identity(shortcut: nn.Module) -> nn.Module | None:
    """The shortcut as a `Branch` wants it: None where it is x itself."""
    return None if isinstance(shortcut, nn.Identity) else shortcut


def steps(depths: tuple[int, ...], drop_path: float) -> list[tuple[int, int, float]]:
    """(stage, stride, drop-path rate) of every block: each stage after the first begins by halving the image."""
    if not depths or min(depths) < 1:
        raise UserError(f"depths must name at least one block for every stage, found {depths}")
    require_rate(drop_path=drop_path)
    places = [(stage, index) for stage, depth in enumerate(depths) for index in range(depth)]
    rates = ramp(drop_path, len(places))
    return [(stage, 2 if stage and not index else 1, rate) for (stage, index), rate in zip(places, rates, strict=True)]


def initialise_convolutions(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, or with `expansion` 1×1, 3×3 (grouped) and 1×1 to so many times the width; plus the
    shortcut: N×inputs×H×W to N×outputs×H/stride×W/stride."""

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        stride: int,
        expansion: int | None = None,
        groups: int = 1,
        shortcut_bias: bool = False,
        drop_path: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if expansion is None:
            plan = [(inputs, width, 3, stride, 1), (width, width, 3, 1, 1)]
        else:
            plan = [(inputs, width, 1, 1, 1), (width, width, 3, stride, groups), (width, expansion * width, 1, 1, 1)]
        layers: list[nn.Module] = []
        for channels, outputs, kernel, step, parts in plan:
            layers += [convolution(channels, outputs, kernel=kernel, stride=step, groups=parts)]
            layers += [nn.BatchNorm2d(outputs), activate(activation)]
        self.branch = nn.Sequential(*layers[:-1])  # the last activation comes after the sum
        self.outputs = plan[-1][1]
        self.shortcut = projection(inputs, self.outputs, stride=stride, bias=shortcut_bias)
        self.act = activate(activation)
        self.drop_path = DropPath(rate=drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop_path(self.branch(x)) + self.shortcut(x))

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("convolution", self.branch, identity=as_identity(self.shortcut), after=self.act),)


@models.register("resnet8_cifar", help="residual network, tiny", depths=(1, 1, 1), width=16)
@models.register("resnet20_cifar", help="residual network of He et al. for CIFAR", depths=(3, 3, 3), width=16)
@models.register("resnet.arg", help="paper 3's residual network", papers=("arg",), depths=(3, 4, 6, 3), bottleneck=True)
@models.register(
    "resnet50_cifar", help="residual network, bottleneck blocks", papers=("rspc",), depths=(3, 4, 6, 3),
    bottleneck=True,
)  # fmt: skip
@models.register("resnet18_cifar", help="residual network, basic blocks", depths=(2, 2, 2, 2))
class ResNet(nn.Module):
    """Residual network: N×3×H×W to N×num_classes.

    Stage `i` has `depths[i]` blocks of width `width · 2^i`; every stage after the first halves the image.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        depths: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        bottleneck: bool = False,
        drop_path: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        require_positive(width=width)
        self.num_classes = num_classes
        self.stem = nn.Sequential(convolution(3, width, kernel=3), nn.BatchNorm2d(width), activate(activation))
        channels, blocks = width, []
        for stage, stride, rate in steps(depths, drop_path):
            block = ResidualBlock(
                channels, width * 2**stage, stride=stride, expansion=4 if bottleneck else None, drop_path=rate,
                activation=activation,
            )  # fmt: skip
            blocks.append(block)
            channels = block.outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(x.mean((-2, -1)))


@models.register("resnet18_224", help="residual network for ImageNet, basic blocks", published="resnet18")
def resnet18_224(*, num_classes: int = 1000, drop_path: float = 0.0, activation: Activation = "relu") -> nn.Module:
    return from_timm("resnet18", num_classes=num_classes, drop_path=drop_path, activation=activation)


@models.register("resnet50_224", help="residual network for ImageNet", papers=("rspc", "xcit"), published="resnet50")
def resnet50_224(*, num_classes: int = 1000, drop_path: float = 0.0, activation: Activation = "relu") -> nn.Module:
    """Paper 2's baseline is this with `activation="gelu"`."""
    return from_timm("resnet50", num_classes=num_classes, drop_path=drop_path, activation=activation)
