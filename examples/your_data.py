"""Your own images: a plain folder of class folders, a model of timm's, one evaluation."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import hardtack as ht

folder = Path(tempfile.mkdtemp()) / "photos"
noise = np.random.default_rng(0)
for number, name in enumerate(("dark", "bright")):
    (folder / name).mkdir(parents=True)
    for image in range(8):  # of any size and shape
        pixels = noise.integers(0, 100, (40 + 4 * image, 48, 3), dtype=np.uint8) + 150 * number
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{image}.png")

(measured,) = ht.evaluate_run(
    model="timm:resnet18",
    data={"name": f"folder:{folder}", "image_size": 64},
    suite="pgd",
    threat="linf:2/255",
    attack={"steps": 5},
    output=str(folder.parent / "run"),
    quiet=True,
)
print(measured)
print("one row per image:", {name: values[:3].tolist() for name, values in measured.verdicts.items()})
