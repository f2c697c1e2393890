"""Official files under the names that `data=` takes: `cifar10c:PATH/fog/3`, `imagenet_a:PATH`. For measuring only."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data.corruptions.catalogue import names
from hardtack.data.official.detect import open_official
from hardtack.data.official.sets import OfficialC, Shift
from hardtack.data.source import Splits

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig


def _corrupted(config: DataConfig, path: str, kind: str) -> Splits:
    """PATH/TYPE/SEVERITY, whether the files are arrays (PATH/fog.npy) or folders."""
    place = PurePath(path)
    if len(place.parts) < 2 or not place.name.isdecimal():
        example = f"{path.rstrip('/')}/3" if place.name in names() else f"{path.rstrip('/')}/fog/3"
        raise UserError(f"{kind}: '{path}' should end in TYPE/SEVERITY, for example {kind}:{example}")
    official = open_official(str(place.parent.parent), kind=kind, root=config.root)
    assert isinstance(official, OfficialC)
    return {"test": lambda: official.stored(place.parent.name, int(place.name))}


def _shifted(config: DataConfig, path: str, kind: str) -> Splits:
    official = open_official(path, kind=kind, root=config.root)
    assert isinstance(official, Shift)
    return {"test": official.stored}


@datasets.register(
    "cifar10c",
    path="PATH/TYPE/SEVERITY",
    family="official",
    help="cifar10c:PATH/TYPE/SEVERITY: official CIFAR-10-C files, for measuring",
)
def read_cifar10c(config: DataConfig, path: str) -> Splits:
    return _corrupted(config, path, "cifar10c")


@datasets.register(
    "cifar100c",
    path="PATH/TYPE/SEVERITY",
    family="official",
    help="cifar100c:PATH/TYPE/SEVERITY: official CIFAR-100-C files, for measuring",
)
def read_cifar100c(config: DataConfig, path: str) -> Splits:
    return _corrupted(config, path, "cifar100c")


@datasets.register(
    "imagenet_c",
    path="PATH/TYPE/SEVERITY",
    family="official",
    help="imagenet_c:PATH/TYPE/SEVERITY: official ImageNet-C files, for measuring",
)
def read_imagenet_c(config: DataConfig, path: str) -> Splits:
    return _corrupted(config, path, "imagenet_c")


@datasets.register(
    "tiny_imagenet_c",
    path="PATH/TYPE/SEVERITY",
    family="official",
    help="tiny_imagenet_c:PATH/TYPE/SEVERITY: official Tiny-ImageNet-C files, for measuring",
)
def read_tiny_imagenet_c(config: DataConfig, path: str) -> Splits:
    return _corrupted(config, path, "tiny_imagenet_c")


@datasets.register(
    "corrupted",
    path="PATH/TYPE/SEVERITY",
    family="official",
    help="corrupted:PATH/TYPE/SEVERITY: your own images in CIFAR-C's or ImageNet-C's layout, for measuring",
)
def read_corrupted(config: DataConfig, path: str) -> Splits:
    return _corrupted(config, path, "corrupted")


@datasets.register(
    "imagenet_a", path="PATH", family="official", help="imagenet_a:PATH: official ImageNet-A files, for measuring"
)
def read_imagenet_a(config: DataConfig, path: str) -> Splits:
    return _shifted(config, path, "imagenet_a")


@datasets.register(
    "imagenet_r", path="PATH", family="official", help="imagenet_r:PATH: official ImageNet-R files, for measuring"
)
def read_imagenet_r(config: DataConfig, path: str) -> Splits:
    return _shifted(config, path, "imagenet_r")


@datasets.register(
    "imagenet_v2", path="PATH", family="official", help="imagenet_v2:PATH: official ImageNet-V2 files, for measuring"
)
def read_imagenet_v2(config: DataConfig, path: str) -> Splits:
    return _shifted(config, path, "imagenet_v2")


@datasets.register(
    "imagenet_sketch",
    path="PATH",
    family="official",
    help="imagenet_sketch:PATH: official ImageNet-Sketch files, for measuring",
)
def read_imagenet_sketch(config: DataConfig, path: str) -> Splits:
    return _shifted(config, path, "imagenet_sketch")
