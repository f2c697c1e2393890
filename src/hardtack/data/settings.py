"""Section `data:` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hardtack.base.annotations import Shown
from hardtack.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ExtraConfig:
    """Another set whose training images (all of them, where it has no splits) are added to the training split.

    name    the data set, as data.name
    copy    image i is a changed copy of image i of the training set; copies of images held out for validation are left
            out
    root    where archives and relative paths lie, as data.root
    label   label column, where there are several
    limit   only the first n images, evenly by class where stored class by class
    """

    name: str
    copy: bool = False
    root: str | None = None
    label: str | None = None
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """Another set that gives `share` of every batch.

    name    the data set, as data.name; its labels may be a classifier's guesses (npz:PATH)
    share   its share of every batch, between 0 and 1
    root    where archives and relative paths lie, as data.root
    label   label column, where there are several
    limit   only the first n images, evenly by class where stored class by class
    """

    name: str
    share: float = 0.5
    root: str | None = None
    label: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UserError(f"share must lie in (0, 1), found {self.share}")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Section `data:` of a recipe.

    name              a data set: a name or KIND:PATH, such as cifar10, folder:PATH, parquet:PATH, timm:hfds/NAME
                      (hardtack list datasets)
    root              where archives and relative paths lie; null: ./data, then $HARDTACK_DATA
    image_size        shorter side in pixels that images are resized to (bicubic) before the centre crop; null: as
                      stored
    crop              share of the shorter side that the centre crop keeps, 0.875 for "resize 256, crop 224"; null: that
                      for ImageNet-A, -R, -V2 and -Sketch, 1 for all others; evaluations take that of the run or of
                      timm's model first (docs/evaluate.md)
    validation        share of the training split that is set aside where the source has no validation split for it
    test              share of a set without splits that is its test split; 1: all of it
    split_seed        seed that decides which images are set aside
    workers           processes that decode images while training; 0: the training process itself
    stream            decode while training instead of once before; null: where the decoded split exceeds
                      memory_limit_mb
    memory_limit_mb   size of a decoded split, in MB, up to which it is held in memory
    limit             only the first n images of each split, evenly by class where stored class by class; null: all
    label             label column, where there are several (coarse_label)
    test_list         of folder:PATH: a text file with the test images, one path per line relative to their folder, a
                      label after it if they lie in no class folders; null: all of them
    skip_damaged      leave out images that cannot be read, and say how many; false: the first of them is an error
    repeats           of training: times that a drawn image appears in its batch, augmented each time anew; an epoch
                      keeps its length
    extra             of training: sets whose images are added to the training split
    synthetic         of training: a set that gives a share of every batch; an epoch stays one pass over the others
    """

    name: Annotated[str, Shown("data set", "hardtack list datasets")] = "digits"
    root: str | None = None
    image_size: int | None = None
    crop: float | None = None
    validation: float = 0.1
    test: float = 0.2
    split_seed: int = 0
    workers: int = 4
    stream: bool | None = None
    memory_limit_mb: int = 4096
    limit: int | None = None
    label: str | None = None
    test_list: str | None = None
    skip_damaged: bool = False
    repeats: int = 1
    extra: tuple[ExtraConfig, ...] = ()
    synthetic: SyntheticConfig | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.validation < 1:
            raise UserError(f"validation must be a share in [0, 1), found {self.validation}")
        if not 0 < self.test <= 1:
            raise UserError(f"test must be a share in (0, 1], found {self.test}")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise UserError(f"crop must be a share in (0, 1], found {self.crop}")
        for name, least in (("image_size", 1), ("limit", 1), ("workers", 0), ("memory_limit_mb", 0), ("repeats", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} must be at least {least}, found {value}")
