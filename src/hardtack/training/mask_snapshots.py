"""What an objective hides, kept to be looked at: its masks on the same few images after every judged epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.base.files import atomic
from hardtack.data import batches, load_data
from hardtack.training.recipe import Recipe

SHOWN = 8  # images: a strip that a page has room for


class Exhibits:
    """The first images of the validation split, or of the training data where nothing is held out."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.x: Tensor | None = None

    @torch.no_grad()
    def write(self, objective: Any, epoch: int) -> None:
        """masks/epoch_XXXX.npz in the run's folder: images k×H×W×3 uint8, masks k×rows×columns bool.

        Only for an objective whose `masks(x)` gives some. Files of later epochs are from a run that was begun anew.
        """
        masks = objective.masks(self._images()) if hasattr(objective, "masks") else None
        if masks is None:
            return
        folder = self.recipe.folder / "masks"
        for path in folder.glob("epoch_*.npz"):
            if path.stem > _stem(epoch):
                path.unlink()
        pixels = (255 * self._images()).round().to(torch.uint8).permute(0, 2, 3, 1)
        _save(folder / f"{_stem(epoch)}.npz", images=pixels, masks=masks.bool())

    def _images(self) -> Tensor:
        if self.x is None:
            # read anew, as images to be judged are: those of training may be uncut, to be cropped at random
            data = load_data(self.recipe.data, "validation" if self.recipe.data.validation > 0 else "train")
            self.x = next(batches(data.first(SHOWN), SHOWN, device=self.recipe.runtime.torch_device))[0]
        return self.x


def _stem(epoch: int) -> str:
    return f"epoch_{epoch:04d}"


def _save(path: Path, **tensors: Tensor) -> None:
    arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    with atomic(path) as file:
        np.savez_compressed(file, **arrays)
