"""Run folders with what the analyses of weights and losses leave, of networks so small that it takes a second."""

from __future__ import annotations

from pathlib import Path

import torch

import hardtack as ht
from hardtack.base.runtime import Runtime
from hardtack.evaluation import Provenance

LOOKS = (
    ("sparsity", {"bins": 21}),
    ("landscape", {"points": 5}),
    ("landscape", {"points": 5, "threat": "linf:8/255", "attack": "fgsm"}),
    ("landscape", {"points": 5, "dims": 1}),
    ("curvature", {"top": 2, "most": 12, "probes": 2, "ascent": 2}),
    ("complexity", {}),
)


def look_at(folder: Path, *, seed: int, looks=LOOKS) -> Path:
    """Adds the findings to the folder, as `hardtack analyze` would."""
    options = {"patch_size": 4, "depth": 2, "width": 16, "heads": 2}
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, seed=seed, **options)
    generator = torch.Generator().manual_seed(0)
    data = (torch.rand(10, 3, 8, 8, generator=generator), torch.arange(10) % 4)
    for name, settings in looks:
        images = None if name == "sparsity" else data
        ht.analyze(
            model, images, name, folder=folder, runtime=Runtime(device="cpu"), quiet=True,
            provenance=Provenance(run=folder.name, model="vit_digits"), **settings,
        )  # fmt: skip
    return folder
