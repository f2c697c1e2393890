"""ImageNet's classes: the 1000 synsets in the order every model knows them, and the 200 of ImageNet-A and -R.

timm ships the lists. They are read without importing timm, which takes seconds.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import torch
from torch import Tensor

from hardtack.base.errors import UserError

_FILES = {"imagenet": "imagenet_synsets.txt", "imagenet_a": "imagenet_a_synsets.txt",
          "imagenet_r": "imagenet_r_synsets.txt"}  # fmt: skip


@functools.cache
def synsets(name: str = "imagenet") -> tuple[str, ...]:
    """`("n01440764", …)` of `imagenet` (1000), `imagenet_a` or `imagenet_r` (200 each)."""
    spec = importlib.util.find_spec("timm")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "_info" / _FILES[name]
        if path.is_file():
            return tuple(path.read_text(encoding="utf-8").split())
    raise UserError(f"this timm does not ship {_FILES[name]}: pip install --upgrade timm")


@functools.cache
def class_index() -> dict[str, int]:
    """Synset to its place among the 1000 classes."""
    return {synset: place for place, synset in enumerate(synsets())}


def subset(name: str) -> Tensor | None:
    """The class indices (200 int64, ascending) that `imagenet_a` or `imagenet_r` is about; none for other sets."""
    if name not in ("imagenet_a", "imagenet_r"):
        return None
    return torch.tensor(sorted(class_index()[synset] for synset in synsets(name)))
