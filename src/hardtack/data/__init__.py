"""Where images come from: one name, one data set, in [0,1]; batches in a reproducible order; augmentation."""

from hardtack.data import (  # noqa: F401  (they register themselves)
    cifar,
    digits,
    folder,
    npz,
    official,
    parquet,
    random_network,
    timm_readers,
)
from hardtack.data.augment import Augment, AugmentConfig, make_augment
from hardtack.data.datasets import Batch, DataConfig, Dataset, load_data
from hardtack.data.loading import batches, steps_per_epoch
from hardtack.data.mixtures import load_training

__all__ = [
    "Augment",
    "AugmentConfig",
    "Batch",
    "DataConfig",
    "Dataset",
    "batches",
    "load_data",
    "load_training",
    "make_augment",
    "steps_per_epoch",
]
