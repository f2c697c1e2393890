"""Your own suite and metric: is an image classified correctly wherever it is shifted?

hardtack --import your_suite.py evaluate runs/x suite=shifts shifts.pixels=2
"""

from dataclasses import dataclass

import numpy as np
import torch

import hardtack as ht
from hardtack.base.registry import metrics, suites
from hardtack.evaluation import ImageView, Suite


@suites.register("shifts", help="Accuracy when the image is shifted up, down, left and right.")
@dataclass(frozen=True, kw_only=True)
class Shifts(Suite):
    pixels: int = 1  # typed as shifts.pixels=2

    def views(self, config, context):
        steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
        return [self._view(name, step) for name, step in steps.items()]

    def _view(self, name, step):
        by = (step[0] * self.pixels, step[1] * self.pixels)
        return ImageView(
            name=name,
            show=lambda x, index: torch.roll(x, by, dims=(2, 3)),
            settings={"direction": name, "pixels": self.pixels},
        )

    def results(self, measurement):
        correct = np.stack([measurement.columns[f"correct@{view.name}"] for view in measurement.views])
        attack = f"4 shifts of {self.pixels} pixels"
        return [measurement.mean("shifted_accuracy", correct.all(axis=0), attack=attack)]


@metrics.register("shifted_accuracy", title="Right under every shift", percent=True)
def shifted_accuracy(result, columns):
    """One value per image, so that `hardtack compare` can test the difference of two models."""
    return np.stack([value for name, value in columns.items() if name.startswith("correct@")]).all(axis=0)


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    print(
        ht.evaluate(
            model, ht.load_data("digits", "test").first(64), suite="shifts", settings={"shifts.pixels": 2}, quiet=True
        )
    )
