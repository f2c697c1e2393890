"""An occluder's masks as a grid: a row for each image, a column for each epoch."""

from __future__ import annotations

from matplotlib.figure import Figure

from hardtack.report.figures.sheet import WIDTH
from hardtack.report.mask_snapshots import RunMasks, covered

ROWS = 6
HIDDEN = (213, 94, 0)


def mask_snapshots_figure(run_masks: RunMasks) -> Figure:
    rows, columns = min(ROWS, len(run_masks.images)), len(run_masks.epochs)
    tile = min(1.0, WIDTH / columns)
    figure = Figure(figsize=(tile * columns, tile * rows + 0.25), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for row in range(rows):
        for column, epoch in enumerate(run_masks.epochs):
            panel = panels[row, column]
            panel.imshow(covered(run_masks.images[row], run_masks.masks[column, row], HIDDEN), interpolation="nearest")
            panel.axis("off")
            if row == 0:
                panel.set_title(f"epoch {epoch}" if column == 0 else str(epoch), fontsize=8)
    return figure
