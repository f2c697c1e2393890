"""The images on which an exported model is checked: clean ones of the data, and stored adversarial ones of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hardtack.base.arrays import read_arrays
from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.exports.comparison import ImageSet
from hardtack.exports.public import without_paths
from hardtack.results import adversarial_folder, read_results

MOST_ADVERSARIAL = 512


def clean_images(data: Dataset, n: int) -> ImageSet:
    """The first n images of a data set."""
    x = data.batch(range(min(n, len(data)))).x.clamp(0, 1)
    return ImageSet(f"images of {without_paths(data.name)}/{data.split}", x)


def random_images(n: int, shape: tuple[int, int, int]) -> ImageSet:
    """Half of them noise, half of them smooth, of all contrasts: where there is no data."""
    generator = torch.Generator().manual_seed(0)
    channels, *size = shape
    noise = torch.rand((n - n // 2, *shape), generator=generator)
    coarse = torch.rand((n // 2, channels, 4, 4), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=size, mode="bilinear")
    x = torch.cat([noise, smooth]) * torch.rand((n, 1, 1, 1), generator=generator)
    return ImageSet("random images", x)


def adversarial_images(folder: Path, weights_sha256: str | None, shape: tuple[int, ...]) -> ImageSet | None:
    """The adversarial images that are stored of evaluations of these weights; None if there are none."""
    if weights_sha256 is None or not folder.is_dir():
        return None
    measured = {result.evaluation for result in read_results(folder) if result.weights_sha256 == weights_sha256}
    parts: list[Tensor] = []
    used = 0
    for evaluation in sorted(measured):
        stored = [_stored(path, shape) for path in sorted(adversarial_folder(folder, evaluation).glob("*.npz"))]
        found = [x for x in stored if x is not None]
        used += bool(found)
        parts += found
    if not parts:
        return None
    x = torch.cat(parts)
    if len(x) > MOST_ADVERSARIAL:  # spread over all of them
        x = x[torch.linspace(0, len(x) - 1, MOST_ADVERSARIAL).round().long()]
    of = f"{used} evaluation{'s' if used > 1 else ''}"
    return ImageSet(f"stored adversarial images of {of}", x.clamp(0, 1))


def _stored(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    try:
        x = read_arrays(path, names=("x_adv",)).get("x_adv")
    except UserError:  # a damaged file is for `hardtack verify`
        return None
    fits = x is not None and x.ndim == 4 and x.shape[1:] == shape and x.dtype.kind == "f"
    return torch.from_numpy(x.astype(np.float32)) if fits and x is not None and len(x) else None
