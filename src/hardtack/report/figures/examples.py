"""Adversarial examples as a grid: clean, attacked, and the perturbation magnified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from hardtack.report import attack_examples, wording
from hardtack.report.figures.sheet import literal
from hardtack.results import Gallery

GRID_ROWS = 6


def examples_figure(gallery: Gallery) -> Figure:
    count = min(GRID_ROWS, len(gallery.x))
    factor = attack_examples.magnification([gallery])
    delta = attack_examples.perturbation(gallery)
    figure = Figure(figsize=(3.9, 1.35 * count), layout="constrained")
    panels = figure.subplots(count, 3, squeeze=False)
    for row in range(count):
        label = wording.class_name(gallery.class_name(int(gallery.label[row])))
        prediction = wording.class_name(gallery.class_name(int(gallery.adversarial_prediction[row])))
        size = wording.size(float(gallery.size[row]), gallery.threat)
        shown: Sequence[tuple[Any, str]] = (
            (gallery.x[row], label),
            (attack_examples.to_uint8(gallery.x_adv[row]), f"{label} → {prediction}"),
            (attack_examples.magnified(delta[row], factor), f"×{factor}, size {size}" if size else "not attacked"),
        )
        for panel, (image, title) in zip(panels[row], shown, strict=True):
            panel.imshow(image, interpolation="nearest")
            panel.set_title(literal(title), fontsize=8)
            panel.axis("off")
    return figure
