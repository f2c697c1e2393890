"""Figures for papers from the same values as the page's charts, as PDF, SVG and PNG; examples and masks as grids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from hardtack.base.errors import UserError
from hardtack.report import charts, kinds, palette
from hardtack.report.damage import with_sound_runs
from hardtack.report.figures.examples import examples_figure
from hardtack.report.figures.mask_snapshots import mask_snapshots_figure
from hardtack.report.figures.sheet import STYLE, caption, file_name, save
from hardtack.report.mask_snapshots import read_mask_snapshots
from hardtack.results import Gallery, Run, read_runs


def write_figures(
    run_dirs: str | Path | Iterable[str | Path], folder: str | Path, *, formats: Sequence[str]
) -> list[Path]:
    """Write every figure these runs have data for into `folder`, in these formats; returns the files."""
    runs, drawn = with_sound_runs(read_runs(run_dirs), _charts_of)
    written = save_charts(drawn, folder, formats=formats)
    written += save_masks(runs, folder, formats=formats)
    return written + save_examples(runs, folder)


def save_charts(drawn: Sequence[dict[str, Any]], folder: str | Path, *, formats: Sequence[str]) -> list[Path]:
    """Charts as figures, each view of a chart in a file of its own."""
    written: list[Path] = []
    with rc_context(STYLE):
        for name, figure in _figures(drawn):
            written += save(figure, [Path(folder) / f"{name}.{format}" for format in formats])
    return written


def save_masks(runs: Sequence[Run], folder: str | Path, *, formats: Sequence[str]) -> list[Path]:
    """The masks of every run that has an occluder."""
    written: list[Path] = []
    with rc_context(STYLE):
        for run_masks in read_mask_snapshots(runs)[0]:
            name = f"masks-{file_name(run_masks.name)}"
            written += save(mask_snapshots_figure(run_masks), [Path(folder) / f"{name}.{format}" for format in formats])
    return written


def save_examples(runs: Sequence[Run], folder: str | Path) -> list[Path]:
    """The adversarial examples of every run, as PNG."""
    written: list[Path] = []
    with rc_context(STYLE):
        for run in runs:
            for gallery in run.galleries:
                if len(gallery.x):
                    path = Path(folder) / f"examples-{file_name(run.label)}-{gallery.id}.png"
                    written += save(examples_figure(gallery), [path])
    return written


def _charts_of(read: Sequence[Run]) -> tuple[Sequence[Run], list[dict[str, Any]]]:
    runs = palette.in_order(read)
    return runs, [chart for section in charts.sections(runs) for chart in section["charts"]]


def write_examples_figure(gallery: Gallery, path: str | Path) -> Path:
    """One gallery as a picture: clean, attacked and magnified perturbation, one row per image."""
    if not len(gallery.x):
        raise UserError("there is no example to draw: choose at least one")
    with rc_context(STYLE):
        return save(examples_figure(gallery), [Path(path)])[0]


def _figures(drawn: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Figure]]:
    """One figure per view: what the page switches between, paper shows beside each other."""
    stems = [_stem(chart) for chart in drawn]
    taken: Counter[str] = Counter()
    for stem, chart in zip(stems, drawn, strict=True):
        views = chart.get("views", [None])
        for view in views:
            parts = (
                [chart.get("file", chart["title"])] if stems.count(stem) > 1 else []
            )  # which of several charts, which of its views
            parts += [view["file"]] if len(views) > 1 else []
            name = "-".join([stem, *map(file_name, parts)])
            taken[name] += 1
            figure = kinds.figure(chart, view)
            caption(figure, (view or {}).get("caption") or chart["caption"])
            yield (name if taken[name] == 1 else f"{name}-{taken[name]}"), figure


def _stem(chart: dict[str, Any]) -> str:
    stem, _, place = chart["id"].rpartition("-")
    return stem if place.isdigit() else chart["id"]
