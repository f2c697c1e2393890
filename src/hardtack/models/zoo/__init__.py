"""Architectures of our own, one file each; importing this package registers them."""

from hardtack.models.zoo.preact_resnet import PreActResNet
from hardtack.models.zoo.resnet import ResNet
from hardtack.models.zoo.vit import VisionTransformer

__all__ = ["PreActResNet", "ResNet", "VisionTransformer"]
