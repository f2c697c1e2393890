"""How an occluder's masks change: the same images after several epochs, with what is hidden of them drawn over."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.errors import UserError
from hardtack.report.attack_examples import data_uri
from hardtack.results import Run, read_arrays

SHOWN_EPOCHS = 8  # of more: the first, the last, and others evenly between them
SHOWN_IMAGES = 8
FEW_IMAGES = 4  # where more than two runs have masks


@dataclass(frozen=True, kw_only=True)
class RunMasks:
    """One run's masks: `images` k×H×W×3 uint8, `masks` epochs×k×rows×columns bool."""

    run: int
    name: str
    epochs: tuple[int, ...]
    images: np.ndarray
    masks: np.ndarray

    @property
    def varieties(self) -> list[int]:
        """How many different masks the images have, after each epoch."""
        return [len({mask.tobytes() for mask in masks}) for masks in self.masks]


def read_mask_snapshots(runs: Sequence[Run]) -> tuple[list[RunMasks], list[str]]:
    """The strips of the runs that have masks; and what could not be read, which must not cost the page."""
    snapshots, problems = [], []
    for number, run in enumerate(runs):
        try:
            run_masks = _snapshots_of(number, run)
        except UserError as error:
            problems.append(f"{run.label}: {error}")
            warnings.warn(str(error), stacklevel=2)
            continue
        snapshots += [run_masks] if run_masks else []
    return snapshots, problems


def images_shown(snapshots: Sequence[RunMasks]) -> int:
    """Of how many images the page has room for the strips."""
    return SHOWN_IMAGES if len(snapshots) <= 2 else FEW_IMAGES


def snapshots_view(run_masks: RunMasks, *, images: int = SHOWN_IMAGES) -> dict[str, Any]:
    """As the page lays it out: each image once, and over it for every epoch the outline of what is hidden."""
    rows, columns = run_masks.masks.shape[2:]
    height, width = run_masks.images.shape[1:3]
    return {
        "run": run_masks.run,
        "name": run_masks.name,
        "epochs": run_masks.epochs,
        "varieties": run_masks.varieties,
        "count": len(run_masks.images),
        "box": f"0 0 {columns} {rows}",
        "patches": rows * columns,
        "ratio": f"{width}/{height}",
        "images": [
            {
                "source": data_uri(run_masks.images[place]),
                "cells": [{"path": outline(mask), "hidden": int(mask.sum())} for mask in run_masks.masks[:, place]],
            }
            for place in range(min(images, len(run_masks.images)))
        ],
    }


def outline(mask: np.ndarray) -> str:
    """A mask rows×columns as the path of its hidden patches, in units of patches."""
    return "".join(f"M{column} {row}h1v1h-1z" for row, column in np.argwhere(mask).tolist())


def covered(image: np.ndarray, mask: np.ndarray, colour: Sequence[int], *, strength: float = 0.8) -> np.ndarray:
    """The image H×W×3 with the hidden patches painted over; patches at the edge may be cut off by it."""
    height, width = image.shape[:2]
    size = -(-height // mask.shape[0]), -(-width // mask.shape[1])
    hidden = mask.repeat(size[0], axis=0).repeat(size[1], axis=1)[:height, :width, None]
    painted = (1 - strength) * image + strength * np.asarray(colour, dtype=float)
    return np.where(hidden, np.round(painted), image).astype(np.uint8)


def _snapshots_of(number: int, run: Run) -> RunMasks | None:
    paths = {int(path.stem[6:]): path for path in run.path.glob("masks/epoch_*.npz") if path.stem[6:].isdigit()}
    if not paths:
        return None
    epochs = sorted(paths)
    if len(epochs) > SHOWN_EPOCHS:
        places = np.linspace(0, len(epochs) - 1, SHOWN_EPOCHS).round().astype(int)
        epochs = [epochs[place] for place in places]
    read = [_read(paths[epoch]) for epoch in epochs]
    images, masks = read[-1]
    for epoch, (others, other_masks) in zip(epochs, read, strict=True):
        if not np.array_equal(others, images) or other_masks.shape != masks.shape:
            raise UserError(f"{paths[epoch]} shows other images than {paths[epochs[-1]]}: remove it")
    return RunMasks(
        run=number,
        name=run.label,
        epochs=tuple(epochs),
        images=images,
        masks=np.stack([masks for _, masks in read]),
    )


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_arrays(path)
    images, masks = arrays.get("images", np.empty(0)), arrays.get("masks", np.empty(0))
    fits = images.ndim == 4 and images.shape[-1] == 3 and masks.ndim == 3 and len(images) == len(masks) > 0
    if not fits or images.dtype != np.uint8 or masks.dtype != bool:
        raise UserError(f"{path} must hold images k×H×W×3 (uint8) and masks k×rows×columns (bool); remove it")
    return images, masks
