"""The model contract: a module from [0,1] pixels to logits whose first layer normalises.

Attacks, budgets and clipping then live in pixel units everywhere, and no caller can normalise twice or
forget to.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.models.adaptation import Adaptation
from hardtack.models.first_images import no_tensor

Triple = tuple[float, float, float]
Channels = float | Sequence[float] | Tensor | np.ndarray[Any, Any]
"""A value for all channels, or one for each, as a user gives it."""


class Normalize(nn.Module):
    """(x − mean) / std per channel. With mean 0 and std 1 it hands x through untouched.

    The buffers are not part of the state dict: normalisation belongs to the architecture, and an average of
    weights or a checkpoint from elsewhere must not be able to change it.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Triple, std: Triple, channels: int = 3) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean[:channels]).view(1, channels, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std[:channels]).view(1, channels, 1, 1), persistent=False)
        self.identity = mean == (0.0, 0.0, 0.0) and std == (1.0, 1.0, 1.0)
        self.text = f"mean={mean}, std={std}"

    def forward(self, x: Tensor) -> Tensor:
        return x if self.identity else (x - self.mean) / self.std

    def extra_repr(self) -> str:
        return self.text


class Classifier(nn.Module):
    """[0,1] pixels N×3×H×W to logits N×num_classes: `body(normalise(x))`. With `channels=1` images are grey, N×1×H×W.

    `architecture` is a plain mapping from which `rebuild` can make the same network again. `image_size` is
    the only size this model accepts, None when any will do; `num_classes` is None when a wrapped module does
    not say. `fitted` is the account of weights that were adapted from a network of another size, else None.
    """

    fitted: Adaptation | None = None

    def __init__(
        self,
        body: nn.Module,
        *,
        mean: Triple,
        std: Triple,
        num_classes: int | None,
        image_size: int | None,
        architecture: dict[str, Any],
        channels: int = 3,
    ) -> None:
        super().__init__()
        self.normalise = Normalize(mean, std, channels)
        self.channels = channels
        self.body = body
        self.num_classes = num_classes
        self.image_size = image_size
        self.architecture = {
            **architecture,
            "num_classes": num_classes,
            "image_size": image_size,
            "mean": list(mean),
            "std": list(std),
            **({} if channels == 3 else {"channels": channels}),
        }

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        out = self.body(self.normalise(x))
        return out if isinstance(out, Tensor) else _logits(out)

    def _check(self, x: Tensor) -> None:
        # Shapes and dtypes are static under torch.compile: these checks leave no trace in the graph.
        if x.ndim != 4 or x.shape[1] != self.channels:
            is_grey = x.ndim == 4 and x.shape[1] == 1
            grey = "; for a network of grey images: ht.wrap(module, channels=1)" if is_grey else ""
            raise UserError(f"a model takes images of shape N×{self.channels}×H×W, found {_shape(x)}{grey}")
        if not x.is_floating_point():
            raise UserError(f"a model takes float pixels in [0,1], found {x.dtype}; divide bytes by 255")
        size = self.image_size
        if size is not None and (x.shape[2] != size or x.shape[3] != size):
            low, high = sorted(x.shape[2:])
            mend = "resize the data or load the model with another image_size"
            if low != high:  # no image_size of the model fits them
                mend = f"these are not square: data.image_size={low if size == high else size} cuts them"
            raise UserError(f"this model takes {size}×{size} images, found {_shape(x)}; {mend}")


def wrap(
    module: nn.Module,
    *,
    mean: Channels | None = None,
    std: Channels | None = None,
    image_size: int | None = None,
    num_classes: int | None = None,
    channels: Literal[1, 3] = 3,
) -> Classifier:
    """A module of the user's as a `Classifier`. It shares the module's weights and its train/eval flags.

    `mean` and `std` are what the module expects its input to be normalised with; None when it takes [0,1]
    pixels as they are. `num_classes`, when None, is read from the module or, with `image_size`, measured.
    `channels=1`: the module takes grey images.
    """
    if channels not in (1, 3):
        raise UserError(f"channels must be 3 (colour) or 1 (grey), found {channels!r}")
    if not isinstance(module, nn.Module):
        raise UserError(f"wrap takes a torch.nn.Module, found {type(module).__name__}")
    if isinstance(module, Classifier):
        raise UserError("this model is a Classifier already: it normalises its input; use it as it is")
    kind = type(module)
    model = Classifier(
        module,
        mean=as_triple("mean", mean, default=0.0),
        std=as_triple("std", std, default=1.0),
        num_classes=num_classes,
        image_size=image_size,
        architecture={"name": f"{kind.__module__}.{kind.__qualname__}", "options": {}, "source": "wrapped"},
        channels=channels,
    )
    model.training = module.training
    if num_classes is None:
        said = getattr(module, "num_classes", None)
        model.num_classes = said if isinstance(said, int) else None
        if model.num_classes is None and image_size is not None:
            model.num_classes = probe(model, image_size).shape[-1]
        model.architecture["num_classes"] = model.num_classes
    return model


def normalisation(model: nn.Module) -> dict[str, Triple]:
    """The `mean` and `std` that the model normalises pixels with: 0 and 1 where it has no such layer."""
    layer = next((part for part in model.modules() if isinstance(part, Normalize)), None)
    if layer is None:
        return {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    values = {name: getattr(layer, name).flatten().tolist() for name in ("mean", "std")}
    return {name: as_triple(name, each, default=0.0) for name, each in values.items()}


def probe(model: nn.Module, image_size: int, *, low: float = 0.5, high: float = 0.5) -> Tensor:
    """The logits (1×num_classes) of one image, grey or a ramp from `low` to `high`, in eval mode.

    Every train/eval flag is put back.
    """
    tensor = next(iter(model.parameters()), torch.empty(0))
    with evaluating(model), torch.no_grad():
        ramp = torch.linspace(low, high, image_size, device=tensor.device)
        channels = model.channels if isinstance(model, Classifier) else 3
        return model(ramp.expand(1, channels, image_size, image_size).contiguous())


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every train/eval flag is what it was."""
    flags = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in flags.items():
            module.training = training


def as_triple(name: str, value: Channels | None, *, default: float) -> Triple:
    """Three channel values from one number (also in a list, as torchvision has it for grey), three numbers or None."""
    given = default if value is None else value
    given = given.tolist() if isinstance(given, Tensor | np.ndarray | np.generic) else given
    numbers = [given] if isinstance(given, int | float) else list(given)
    odd = [number for number in numbers if isinstance(number, bool) or not isinstance(number, int | float)]
    if len(numbers) not in (1, 3) or odd or not all(map(math.isfinite, numbers)):
        raise UserError(f"{name} must be one finite number or three (red, green, blue), found {value!r}")
    if name == "std" and min(numbers) <= 0:
        raise UserError(f"std must be positive, found {value!r}")
    if max(abs(number) for number in numbers) > 2:
        raise UserError(f"{name} is in [0,1] pixel units, found {value!r}; divide by 255")
    red, green, blue = map(float, numbers * (3 // len(numbers)))
    return red, green, blue


def _logits(out: Any) -> Tensor:
    logits = getattr(out, "logits", None)  # Hugging Face's output records
    if isinstance(logits, Tensor):
        return logits
    raise no_tensor(out)


def _shape(x: Tensor) -> str:
    return "×".join(str(size) for size in x.shape)
