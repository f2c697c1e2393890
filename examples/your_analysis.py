"""Your own analysis: settings that become rows of work and a conclusion; registered, `hardtack analyze` knows it."""

from dataclasses import dataclass

import torch

import hardtack as ht
from hardtack.analysis import Conclusion, OverImages, mean_score
from hardtack.base.registry import analyses


@analyses.register("gradient_size")
@dataclass(frozen=True, kw_only=True)
class GradientSize(OverImages):
    """How long the gradient of the loss in the pixels is."""

    def begin(self, context):
        return Rows(context, at_once=self.batch_size or 100)


class Rows:
    """A row for each image, which must not depend on the others that are computed with it."""

    def __init__(self, context, *, at_once):
        self.context, self.length, self.at_once = context, context.count, at_once

    def rows(self, start, stop):
        x, y, index = self.context.images(start, stop)
        x.requires_grad_()
        loss = torch.nn.functional.cross_entropy(self.context.model(x), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        found = {"index": index, "label": y, "size": gradient.flatten(1).norm(dim=1)}
        return {name: value.cpu().numpy() for name, value in found.items()}

    def conclude(self, arrays):
        return Conclusion(scores=[mean_score("gradient_size", arrays["size"])])


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    found = ht.analyze(model, ht.load_data("digits", "test"), "gradient_size", n=64, quiet=True)
    print(found)
    print("the longest:", found.arrays["size"].max())
