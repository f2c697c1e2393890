"""The masks of an objective on the same few images after every validated epoch, stored for the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.base.files import atomic
from hardtack.data import batches, load_data
from hardtack.objectives.contract import Objective
from hardtack.training.recipe import Recipe

SHOWN = 8  # images: one row of the page


class MaskSnapshotWriter:
    """Uses the first images of the validation split, or of the training data where there is no validation split."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        self.x: Tensor | None = None

    @torch.no_grad()
    def write(self, objective: Objective, epoch: int) -> None:
        """masks/epoch_XXXX.npz in the run's folder: images k×H×W×3 uint8, masks k×rows×columns bool.

        Only for objectives with `masks`. Files of later epochs belong to an earlier run in this folder: they go.
        """
        if not objective.has_masks:
            return
        masks = objective.masks(self._images())
        folder = self.folder / "masks"
        for path in folder.glob("epoch_*.npz"):
            if path.stem > _stem(epoch):
                path.unlink()
        pixels = (255 * self._images()).round().to(torch.uint8).permute(0, 2, 3, 1)
        _save(folder / f"{_stem(epoch)}.npz", images=pixels, masks=masks.bool())

    def _images(self) -> Tensor:
        if self.x is None:
            # loaded as for validation: training images may have their stored size, for random crops
            data = load_data(self.recipe.data, "validation" if self.recipe.data.validation > 0 else "train")
            self.x = next(batches(data.first(SHOWN), SHOWN, device=self.recipe.runtime.torch_device))[0]
        return self.x


def _stem(epoch: int) -> str:
    return f"epoch_{epoch:04d}"


def _save(path: Path, **tensors: Tensor) -> None:
    arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    with atomic(path) as file:
        np.savez_compressed(file, **arrays)
