"""Residual networks for small images (He et al. 2016): 3×3 stem, no max-pooling, any image size.

`resnet18` and `resnet50` are the wide ImageNet bodies on a CIFAR stem, as the robustness literature uses
them; `resnet8` and `resnet20` are the original three-stage CIFAR networks.
"""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.errors import UserError
from hardtack.registry import models


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, or with `bottleneck` 1×1, 3×3, 1×1 to four times the width; plus the shortcut."""

    def __init__(self, inputs: int, width: int, *, stride: int, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            plan = [(inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        else:
            plan = [(inputs, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for channels, outputs, kernel, step in plan:
            layers += [_convolution(channels, outputs, kernel=kernel, stride=step), nn.BatchNorm2d(outputs)]
            layers += [nn.ReLU(inplace=True)]
        self.branch = nn.Sequential(*layers[:-1])  # the last activation comes after the sum
        self.outputs = plan[-1][1]
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != self.outputs:
            self.shortcut = nn.Sequential(
                _convolution(inputs, self.outputs, kernel=1, stride=stride), nn.BatchNorm2d(self.outputs)
            )
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.branch(x) + self.shortcut(x))


@models.register("resnet8_cifar", help="residual network, tiny", depths=(1, 1, 1), width=16)
@models.register("resnet20_cifar", help="residual network of He et al. for CIFAR", depths=(3, 3, 3), width=16)
@models.register("resnet50_cifar", help="residual network, bottleneck blocks", depths=(3, 4, 6, 3), bottleneck=True)
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
    ) -> None:
        super().__init__()
        if not depths or min(depths) < 1 or width < 1:
            raise UserError(f"a ResNet needs at least one block per stage; found {depths=}, {width=}")
        self.num_classes = num_classes
        self.stem = nn.Sequential(_convolution(3, width, kernel=3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        channels, blocks = width, []
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                block = ResidualBlock(channels, width * 2**stage, stride=stride, bottleneck=bottleneck)
                blocks.append(block)
                channels = block.outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(x.mean((-2, -1)))
