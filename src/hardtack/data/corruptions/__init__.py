"""Common corruptions (Hendrycks and Dietterich 2019) as batched tensor operations: 15 common types and 4 extra ones.

    x_c = corrupt(x, index, "fog", 3)                       # CIFAR-C's constants
    x_c = corrupt(x, index, "fog", 3, constants="imagenet")

The random numbers of an image's corruption depend on the seed, the image's index, the type and the severity alone: not
on the batch, the order, the device or the other registered types.
"""

from hardtack.data.corruptions.catalogue import (
    COMMON,
    EXTRA,
    GROUPS,
    NOISE,
    SEVERITIES,
    Constants,
    constants_for,
    corrupt,
    names,
)
from hardtack.data.corruptions.overlays import frost_source

__all__ = [
    "COMMON",
    "EXTRA",
    "GROUPS",
    "NOISE",
    "SEVERITIES",
    "Constants",
    "constants_for",
    "corrupt",
    "frost_source",
    "names",
]
