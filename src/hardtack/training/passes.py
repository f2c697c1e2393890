"""How often an image passes the model in one step of a recipe, counted on a small network and made-up images.

The numbers follow from the objective (attack steps, a second batch for RSPC, two gradients for SAM), not from the
network or the data, so that they are known where the data of a recipe is not.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch

from hardtack.attacks.pool.search import Cost
from hardtack.base.runtime import Runtime
from hardtack.data import AugmentConfig, DataConfig, load_training
from hardtack.models import ModelConfig
from hardtack.models.passes import count_passes
from hardtack.training.recipe import Recipe
from hardtack.training.rehearsal import all_batches, first_images
from hardtack.training.start import fresh_model
from hardtack.training.trainer import Trainer

_IMAGES = 8
_LATE = 10_000  # an epoch after every warm-up
_STEPS = 10_000  # of an epoch
_NETWORK = ModelConfig(name="vit_tiny_patch4_32", options={"depth": 2, "width": 32, "heads": 2})


def passes_per_image(recipe: Recipe, *, epoch: float | None = None) -> tuple[Cost, Cost]:
    """Forward and backward passes of one image in a step: those of the attack, and those of the update.

    `epoch`: the time of the step, with fractions; without it, a time at which every setting that starts late has.
    """
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng([]):
        images = np.random.default_rng(0).integers(0, 256, (_IMAGES, 32, 32, 3), dtype=np.uint8)
        file = Path(folder) / "images.npz"
        np.savez(file, x=images, y=np.arange(_IMAGES) % 4)
        small = dataclasses.replace(
            recipe, output=str(Path(folder) / "run"), model=_NETWORK, augment=AugmentConfig(),
            data=DataConfig(name=f"npz:{file}", validation=0.0, test=0.01, workers=0),
            runtime=Runtime(device="cpu", seed=0),
            train=dataclasses.replace(recipe.train, batch_size=4, accumulate=1, patience=None, freeze=()),
        )  # fmt: skip
        data = load_training(small.data, small.augment)
        job = Trainer(small, fresh_model(small, data), data, quiet=True)
        late = max(recipe.train.epochs - 1, _LATE)
        job.steps_per_epoch = _STEPS  # the time of a step is told from this
        job.progress.done = round((late if epoch is None else epoch) * _STEPS)
        batch = first_images(next(all_batches(job)), 2)
        with count_passes(job.model) as passes:
            job.step(batch)
    attack, update = (Cost(*(count // len(batch.x) for count in pair)) for pair in passes)
    return attack, update
