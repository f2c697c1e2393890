"""An occluder's masks as a grid: a row for each image, a column for each epoch."""

from __future__ import annotations

from matplotlib.figure import Figure

from hardtack.report.figures.sheet import WIDTH
from hardtack.report.masks import Strip, covered

ROWS = 6
HIDDEN = (213, 94, 0)


def masks_figure(strip: Strip) -> Figure:
    rows, columns = min(ROWS, len(strip.images)), len(strip.epochs)
    tile = min(1.0, WIDTH / columns)
    figure = Figure(figsize=(tile * columns, tile * rows + 0.25), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for row in range(rows):
        for column, epoch in enumerate(strip.epochs):
            panel = panels[row, column]
            panel.imshow(covered(strip.images[row], strip.masks[column, row], HIDDEN), interpolation="nearest")
            panel.axis("off")
            if row == 0:
                panel.set_title(f"epoch {epoch}" if column == 0 else str(epoch), fontsize=8)
    return figure
