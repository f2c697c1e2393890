"""Which share of its shorter side an image keeps when it is resized for a model, where `data.crop` does not say it.

    a run on its own data      what its recipe says; none: 1
    a run on other data        the same, if its recipe says it; none: what the reader of the data says
    timm:NAME, and published   timm's `crop_pct` of these weights (0.9 for vit_small_patch16_224)
    weights of our own models
    any other model            what the reader of the data says: 0.875 for ImageNet-A, -R, -V2 and -Sketch, 1 for others
    another column of a row    that of the row's clean images

Images that were cropped when they were made (ImageNet-C, and corrupted copies) are not cropped again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hardtack.data import DataConfig
from hardtack.models import ModelConfig
from hardtack.models.catalog import published_crop

_CROPPED = ("imagenet_c", "corrupted")


def crop_of_run(run_data: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The `data` settings that a run passes on to other data: `{"crop": 0.875}`, or nothing."""
    crop = run_data.get("crop")
    return {} if crop is None or is_cropped(str(other.get("name", ""))) else {"crop": crop}


def crop_of_model(named: ModelConfig, data: DataConfig) -> float | None:
    """The crop of the images of a model without a run; None leaves it to the reader of the data."""
    if data.crop is not None or is_cropped(data.name):
        return data.crop
    return published_crop(named.name, named.pretrained)


def is_cropped(name: str) -> bool:
    """Whether the images of a data set were cropped when they were made."""
    return name.partition(":")[0] in _CROPPED
