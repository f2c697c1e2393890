"""Images and labels that a user has as arrays: NumPy's, torch's or lists, in the layouts and types people keep them in.

    layout     N×C×H×W or N×H×W×C with 1 or 3 channels, or N×H×W (grey); one that could be both is refused
    pixels     integers are 0 … 255 and are divided by 255; floats must lie in [0,1]; float64 and half become float32
    channels   grey images become three equal channels, unless the model takes one
    labels     whole numbers of any type become int64

Nothing is guessed from values: an array that has two readings is refused, and the message says how to write each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.base.errors import UserError

_TOLERANCE = 1e-6
_CHANNELS = (1, 3)
NORMALISED = "undo any normalisation and put it inside the model: ht.wrap(module, mean=…, std=…)"

Array = Tensor | np.ndarray[Any, Any] | Sequence[Any]
"""Images or labels as a user gives them."""


class Pixels(NamedTuple):
    """N×C×H×W with one or three channels, uint8 or float32 in [0,1], and what was done to get there."""

    images: Tensor
    note: str


def is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor of numbers from a tensor, an array, or a list of them; no copy where none is needed."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, list | tuple) and value and all(isinstance(item, Tensor) for item in value):
        if len({item.shape for item in value}) > 1:
            raise UserError(f"{what} have several sizes: resize them to one, for example in the data set's transform")
        return torch.stack([item.detach() for item in value])
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf":
        sizes = " (arrays of several sizes?)" if array.dtype.kind == "O" else ""
        raise UserError(f"{what} must be an array of numbers, found {type(value).__name__} of {array.dtype}{sizes}")
    if array.dtype in (np.uint16, np.uint32, np.uint64, np.longdouble) or array.dtype.byteorder == ">":
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return torch.from_numpy(np.ascontiguousarray(array) if array.flags.writeable else np.array(array))


# ---------------------------------------------------------------- images


def as_pixels(value: Any, *, count: int | None = None, what: str = "images", part: bool = False) -> Pixels:
    """Images from an array; `count`, the number of labels, tells N×H×W from one image without an axis for the batch.

    `part`: of more images, whose levels are checked together by `check_levels`: one of them may be nearly black.
    """
    images = as_tensor(value, what)
    own = isinstance(value, Tensor) and images.dtype == torch.float32  # torch's layout, also of tiny images
    if own and images.ndim == 4 and images.shape[1] in _CHANNELS:
        _check_floats(images, what)
        return Pixels(images, "")
    images, layout = _channels_first(images, count, what)
    images, scale = _scaled(images, what)
    if not part:
        check_levels(images, what)
    return Pixels(images, "; ".join(filter(None, (layout, scale))))


def _channels_first(images: Tensor, count: int | None, what: str) -> tuple[Tensor, str]:
    shape, shown = tuple(images.shape), "×".join(map(str, images.shape))
    if images.ndim == 3:
        if count == 1 != shape[0]:
            raise UserError(f"one image of shape {shown} needs an axis for the batch: x[None]")
        return images[:, None], "grey images N×H×W"
    if images.ndim != 4:
        mend = "reshape them to N×H×W or N×3×H×W" if images.ndim == 2 else "give N×3×H×W or N×H×W×3"
        raise UserError(f"{what} have {images.ndim} axes ({shown}); {mend}")
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if first and last and not (shape[1] == shape[3] == 1 and shape[2] == 1):
        raise UserError(
            f"{what} of shape {shown} may be N×C×H×W or N×H×W×C: give a float32 tensor of torch, which is N×C×H×W"
        )
    if first:
        return images, ""
    if last:
        return images.permute(0, 3, 1, 2), "channels last"
    alpha = next((axis for axis in (1, 3) if shape[axis] == 4), None)
    mend = "give N×3×H×W or N×H×W×3"
    if alpha is not None:
        mend = f"of red, green, blue and alpha keep three: {'x[:, :3]' if alpha == 1 else 'x[..., :3]'}"
    raise UserError(f"{what} of shape {shown} have no axis of 1 or 3 channels, second or last; {mend}")


def _scaled(images: Tensor, what: str) -> tuple[Tensor, str]:
    """uint8, or float32 in [0,1]."""
    kind = str(images.dtype).removeprefix("torch.")
    if images.dtype == torch.bool:
        return images.float(), "bool as 0 and 1"
    if images.is_complex():
        raise UserError(f"{what} must be real numbers, found {kind}")
    if images.is_floating_point():
        images = images.float()
        _check_floats(images, what)
        return images, "" if kind == "float32" else f"{kind} as float32"
    if images.numel():
        low, high = int(images.min()), int(images.max())
        if low < 0 or high > 255:
            raise UserError(
                f"{what} are {kind} from {low} to {high}; whole numbers mean 0 … 255: "
                f"scale them to floats in [0,1] yourself{', x / 65535' if 4095 < high <= 65535 and low >= 0 else ''}"
            )
    return images.to(torch.uint8), f"{kind} 0 … 255 divided by 255"


def check_levels(images: Tensor, what: str) -> None:
    """Refuse bytes of which none is above 1: they may be black and white, or all but black."""
    if images.dtype == torch.uint8 and images.numel() and int(images.max()) == 1:
        raise UserError(
            f"{what} are whole numbers and only 0 and 1: if these are black and white give x * 255 or floats, "
            "if they are two of 256 levels of grey give x / 255"
        )


def _check_floats(images: Tensor, what: str) -> None:
    if not images.numel():
        return
    low, high = images.min().item(), images.max().item()
    if low >= -_TOLERANCE and high <= 1 + _TOLERANCE:
        return
    found = f"{what} must lie in [0,1], found [{low:.4g}, {high:.4g}]"
    if math.isnan(low) or math.isnan(high):
        raise UserError(f"{found}: some pixels are NaN")
    if low >= 0 and 1.5 < high <= 255:
        raise UserError(f"{found}; divide values of 0 … 255 by 255, or give them as whole numbers (uint8)")
    raise UserError(f"{found}; {NORMALISED}")


# ---------------------------------------------------------------- labels


def as_labels(value: Any, what: str = "labels") -> tuple[Tensor, str]:
    """int64 labels, one for each image, and what was done to get there."""
    labels = as_tensor(value, what)
    kind, shape = str(labels.dtype).removeprefix("torch."), "×".join(map(str, labels.shape))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 0:
        labels = labels[None]
    if labels.ndim != 1:
        mend = "one class number for each image"
        mend += ": of one-hot rows or probabilities take y.argmax(1)" if labels.ndim == 2 else ""
        raise UserError(f"{what} of shape {shape} must be {mend}")
    if labels.dtype == torch.int64:
        return labels, ""
    if labels.is_floating_point() and not bool((labels == labels.round()).all()):  # NaN too
        raise UserError(f"{what} must be whole numbers 0 … C−1, found {kind} with fractions or NaN")
    return labels.long(), f"labels {kind} as class numbers"
