"""Common corruptions (Hendrycks and Dietterich 2019) as batched tensor operations: 15 common types and 4 extra ones.

    x_c = corrupt(x, index, "fog", 3)                       # CIFAR-C's constants
    x_c = corrupt(x, index, "fog", 3, constants="imagenet")

What is random in an image's corruption follows from the seed, the image's index, the type and the severity, and from
nothing else: not from the batch, the order or the device.
"""

from hardtack.data.corruptions.catalogue import COMMON, EXTRA, NOISE, Constants, constants_for, corrupt, names
from hardtack.data.corruptions.overlays import frost_source

__all__ = ["COMMON", "EXTRA", "NOISE", "Constants", "constants_for", "corrupt", "frost_source", "names"]
