"""Official files under the names that `data=` takes: `cifar10c:PATH/fog/3`, `imagenet_a:PATH`. For measuring only."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data.corruptions.catalogue import names
from hardtack.data.official.detect import open_official
from hardtack.data.official.kinds import KINDS
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


def _register(kind: str) -> None:
    facts = KINDS[kind]
    read, path = (_corrupted, f"PATH/{facts.form}") if facts.form else (_shifted, "PATH")
    what = f"official {facts.title} files" if facts.get else "your own images in CIFAR-C's or ImageNet-C's layout"
    enter = datasets.register(kind, path=path, family="official", help=f"{kind}:{path}: {what}, for measuring")
    enter(lambda config, path: read(config, path, kind))


for _kind in KINDS:
    if KINDS[_kind].form != "TYPE":  # videos are no set of images: open_official gives them one by one
        _register(_kind)
