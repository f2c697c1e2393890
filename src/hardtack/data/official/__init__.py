"""Official robustness files: CIFAR-C, ImageNet-C, ImageNet-P, CIFAR-P and ImageNet-A, -R, -V2, -Sketch.

    files = open_official("data/CIFAR-10-C")           # OfficialC, OfficialP or Shift, by what lies there
    files.types, files.missing, files.description
    fog = files.dataset("fog", 3)                      # a Dataset, as load_data gives it
    fog.source                                         # "official": results carry it; regenerated files say so
    for video in open_official("ImageNet-P").videos("snow"): video.frames, video.label

Files in an official layout that hardtack wrote hold a marker (`mark_regenerated`) and are never taken for official.
"""

from hardtack.data.official import names  # noqa: F401  (it registers the names for data=)
from hardtack.data.official.detect import open_official
from hardtack.data.official.kinds import EXTRA_PERTURBATIONS, KINDS, PERTURBATIONS, Source
from hardtack.data.official.marker import mark_regenerated
from hardtack.data.official.sets import Official, OfficialC, OfficialP, Shift, Video

__all__ = [
    "EXTRA_PERTURBATIONS",
    "KINDS",
    "PERTURBATIONS",
    "Official",
    "OfficialC",
    "OfficialP",
    "Shift",
    "Source",
    "Video",
    "mark_regenerated",
    "open_official",
]
