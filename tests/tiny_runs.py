"""Models, data and recipes so small that a test can afford to train them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.training import Recipe, read_recipe

SIDE, CLASSES = 8, 4
MODEL = {
    "name": "vit_digits",
    "image_size": SIDE,
    "options": {"patch_size": 4, "depth": 2, "width": 16, "heads": 2, "drop_path": 0.2},
}


class Linear(nn.Module):
    """Logits x·W + b: the one model whose strongest linf perturbation is known in closed form."""

    def __init__(self, classes: int = CLASSES, side: int = SIDE, seed: int = 0, scale: float = 0.3) -> None:
        super().__init__()
        self.head = nn.Linear(3 * side * side, classes)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(self.head.weight.shape, generator=generator) * scale)
            self.head.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


def images(count: int = 12, *, side: int = SIDE, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def labels(count: int = 12, *, classes: int = CLASSES, seed: int = 1) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def write_data(path: Path, *, train: int = 40, test: int = 12, seed: int = 0) -> Path:
    """An npz whose classes differ in brightness, so that a few steps already learn something."""
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for split, count in (("train", train), ("test", test)):
        y = np.arange(count) % CLASSES
        noise = generator.integers(0, 64, (count, SIDE, SIDE, 3))
        arrays[f"x_{split}"] = (noise + 45 * y[:, None, None, None]).astype(np.uint8)
        arrays[f"y_{split}"] = y
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def settings(folder: Path, file: Path, **sections: Any) -> dict[str, Any]:
    """A recipe's sections with all that could break a resume switched on: 2 epochs of 5 steps."""
    return {
        "name": "tiny",
        "output": str(folder),
        "data": {"name": f"npz:{file}", "validation": 0.2, "workers": 0},
        "augment": {"crop_padding": 1, "flip": 0.5},
        "model": MODEL,
        "objective": {
            "name": "trades",
            "beta": 2,
            "attack": {"name": "pgd", "threat": "linf:0.1", "steps": 2},
            "warmup": {"epochs": 1},
        },
        "optimiser": {"name": "adamw", "lr": 0.01},
        "schedule": {"name": "cosine", "warmup_epochs": 0.5},
        "train": {"epochs": 2, "batch_size": 6, "accumulate": 2, "ema": 0.9, "clip": 1.0, "log_every": 2},
        "runtime": {"device": "cpu", "seed": 3},
        **sections,
    }


def tiny_recipe(folder: Path, file: Path, **sections: Any) -> Recipe:
    return read_recipe(None, **settings(folder, file, **sections))


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
