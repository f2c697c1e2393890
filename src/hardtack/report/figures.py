"""Figures for papers, from the same numbers as the page: curves as PDF and PNG, examples as a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hardtack.errors import UserError
from hardtack.files import atomic
from hardtack.report import palette, pictures, wording
from hardtack.results import CurveSet, Gallery, Run, curves, read_runs

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8e3da",
    "legend.frameon": False,
    "pdf.fonttype": 42,  # journals refuse Type 3 fonts
}
GRID_ROWS = 6


def write_figures(run_dirs: str | Path | Iterable[str | Path], folder: str | Path) -> list[Path]:
    """Write every figure these runs have data for into `folder`; returns the files."""
    runs = palette.in_order(read_runs(run_dirs))
    folder = Path(folder)
    order = {run.label: number for number, run in enumerate(runs)}
    written: list[Path] = []
    with rc_context(STYLE):
        for number, found in enumerate(curves(runs)):
            figure = _curve_figure(found, order)
            name = "curve" if number == 0 else f"curve-{number + 1}"
            written += [_save(figure, folder / f"{name}.{kind}") for kind in ("pdf", "png")]
        for run in runs:
            for gallery in run.galleries:
                if len(gallery.x):
                    path = folder / f"examples-{_file_name(run)}-{gallery.id}.png"
                    written.append(_save(_examples_figure(gallery), path))
    return written


def write_examples_figure(gallery: Gallery, path: str | Path) -> Path:
    """One gallery as a picture: clean, attacked and magnified perturbation, one row per image."""
    if not len(gallery.x):
        raise UserError("there is no example to draw; ask for at least one")
    with rc_context(STYLE):
        return _save(_examples_figure(gallery), Path(path))


def _curve_figure(found: CurveSet, order: dict[str, int]) -> Figure:
    figure = Figure(figsize=(4.4, 3.1), layout="constrained")
    axes = figure.add_subplot()
    scale = wording.levels(*(point.result.threat for curve in found.curves for point in curve.points))
    percent = 100 if wording.is_share(found.metric) else 1
    for curve in sorted(found.curves, key=lambda curve: order[curve.run]):
        number = order[curve.run]
        faded = number >= len(palette.COLOURS)
        colour = palette.FADED if faded else palette.COLOURS[number]
        dash = "-" if faded or number < palette.SOLID else "--"
        xs = [point.eps * scale for point in curve.points]
        ys = [percent * point.result.value for point in curve.points]
        label = None if faded else _literal(curve.run)
        axes.plot(xs, ys, dash, color=colour, marker="o", markersize=3, label=label, zorder=1 if faded else 2)
        bands = [(x, point.result.low, point.result.high) for x, point in zip(xs, curve.points, strict=True)]
        known = [(x, percent * low, percent * high) for x, low, high in bands if low is not None and high is not None]
        if known and not faded:
            at, low, high = (list(column) for column in zip(*known, strict=True))
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(f"{wording.NORMS.get(found.norm, found.norm)} radius ε{' (in 1/255)' if scale == 255 else ''}")
    axes.set_ylabel(wording.metric_name(found.metric) + (" (%)" if percent == 100 else ""))
    axes.set_xlim(left=0)
    if percent == 100:
        axes.set_ylim(0, 100)
    if len(found.curves) > palette.SOLID:  # a long legend would lie on the curves
        figure.set_figwidth(6.0)
        figure.legend(loc="outside right center")
    else:
        axes.legend()
    return figure


def _examples_figure(gallery: Gallery) -> Figure:
    count = min(GRID_ROWS, len(gallery.x))
    factor = pictures.magnification([gallery])
    delta = pictures.perturbation(gallery)
    figure = Figure(figsize=(3.9, 1.35 * count), layout="constrained")
    panels = figure.subplots(count, 3, squeeze=False)
    for row in range(count):
        label = gallery.class_name(int(gallery.label[row]))
        prediction = gallery.class_name(int(gallery.adversarial_prediction[row]))
        size = wording.size(float(gallery.size[row]), gallery.threat)
        shown: Sequence[tuple[Any, str]] = (
            (gallery.x[row], label),
            (pictures.to_uint8(gallery.x_adv[row]), f"{label} → {prediction}"),
            (pictures.magnified(delta[row], factor), f"×{factor}, size {size}" if size else "not attacked"),
        )
        for panel, (image, title) in zip(panels[row], shown, strict=True):
            panel.imshow(image, interpolation="nearest")
            panel.set_title(_literal(title), fontsize=8)
            panel.axis("off")
    return figure


def _literal(text: str) -> str:
    """A dollar sign would start mathematics, a leading underscore would hide a curve from the legend."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _file_name(run: Run) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in run.label)


def _save(figure: Figure, path: Path) -> Path:
    FigureCanvasAgg(figure)
    with atomic(path) as file:
        # No creation date: the same numbers give the same file.
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
        figure.savefig(file, format=path.suffix[1:], dpi=200, metadata=metadata)
    return path
