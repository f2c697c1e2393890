"""Perturbation sequences (Hendrycks and Dietterich 2019): an image that changes a little from frame to frame.

    for frame in sequence(x, index, "rotate"): …                        # CIFAR-10-P's constants
    for frame in sequence(x, index, "snow", constants="imagenet"): …    # ImageNet-P's

What is random follows from the seed, the image's index, the type and, for noises, the frame, and from nothing else: not
from the batch, the order or the device.
"""

from hardtack.data.perturbations.catalogue import PERTURBATIONS, against, frame_count, sequence

__all__ = ["PERTURBATIONS", "against", "frame_count", "sequence"]
