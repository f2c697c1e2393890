"""Your own analysis with its chart, in one file: how long the gradient of the loss in the pixels is.

hardtack --import your_analysis.py analyze runs/x gradient_size
hardtack --import your_analysis.py report runs/ --figures figures/
"""

from dataclasses import dataclass

import torch

import hardtack as ht
from hardtack.analysis import Conclusion, OverImages, mean_score
from hardtack.base.registry import analyses, charts
from hardtack.report.charts import Section
from hardtack.report.charts.comparable_analyses import comparable_findings, described, where
from hardtack.report.kinds.histogram import histogram_chart, histogram_view


@analyses.register("gradient_size")
@dataclass(frozen=True, kw_only=True)
class GradientSize(OverImages):
    """How long the gradient of the loss in the pixels is."""

    def begin(self, context):
        return Rows(context, at_once=self.batch_size or 100)


class Rows:
    """A row for each image. It must not depend on the other images that are computed with it."""

    def __init__(self, context, *, at_once):
        self.context, self.length, self.at_once = context, context.count, at_once

    def rows(self, start, stop):
        x, y, index = self.context.images(start, stop)
        x.requires_grad_()
        loss = torch.nn.functional.cross_entropy(self.context.model(x), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        arrays = {"index": index, "label": y, "size": gradient.flatten(1).norm(dim=1)}
        return {name: value.cpu().numpy() for name, value in arrays.items()}

    def conclude(self, arrays):
        return Conclusion(scores=[mean_score("gradient_size", arrays["size"])])


@charts.register("gradient_size", section=Section(id="gradients", short="Gradients", title="Gradients in the pixels"))
def gradient_size_charts(runs):
    """A chart for each set of images; the runs that were analysed on the same images are compared in it."""
    return [
        histogram_chart(
            id=f"gradient-size-{number}",
            file="gradient size",
            title="Length of the gradient",
            caption=described(group[0].finding, "l2 norm of the gradient of the loss"),
            views=[
                histogram_view(
                    "all images",
                    [{"run": entry.run, "name": entry.name, "values": entry.finding.arrays["size"]} for entry in group],
                    x="l2 norm",
                )
            ],
        )
        for number, group in enumerate(comparable_findings(runs, "gradient_size", where))
    ]


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    finding = ht.analyze(model, ht.load_data("digits", "test"), "gradient_size", n=64, quiet=True)
    print(finding)
    print("the longest:", finding.arrays["size"].max())
