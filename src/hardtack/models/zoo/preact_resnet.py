"""Residual networks with activations before the convolutions (He et al. 2016, "Identity mappings"), for small images.

The PreActResNet-18 of the adversarial-training literature: normalise and rectify first, then convolve, so that
the shortcut path is a sum and nothing else.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.registry import models


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class PreActBlock(nn.Module):
    """Two 3×3 convolutions behind their normalisations; a block that changes shape projects the activated input."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), _convolution(inputs, width, kernel=3, stride=stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), _convolution(width, width, kernel=3)
        changes = stride != 1 or inputs != width
        self.shortcut = _convolution(inputs, width, kernel=1, stride=stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        kept = x if self.shortcut is None else self.shortcut(active)
        return self.conv2(F.relu(self.norm2(self.conv1(active)))) + kept


@models.register("preact_resnet18_cifar", help="residual network with pre-activation", depths=(2, 2, 2, 2))
class PreActResNet(nn.Module):
    """Pre-activation residual network: N×3×H×W to N×num_classes; stage `i` is `width · 2^i` wide."""

    def __init__(self, *, num_classes: int = 10, depths: tuple[int, ...] = (2, 2, 2, 2), width: int = 64) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.stem = _convolution(3, width, kernel=3)
        channels, blocks = width, []
        for stage, depth in enumerate(depths):
            for index in range(depth):
                blocks.append(PreActBlock(channels, width * 2**stage, stride=2 if stage and not index else 1))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.blocks(self.stem(x)))).mean((-2, -1)))
