"""Figures that lie on their side, as on the page: bars, distributions, stacked bars, dots by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hardtack.report import palette
from hardtack.report.figures.sheet import INK, WIDTH, brief, key, literal, percent_axis


def bars_figure(chart: dict[str, Any]) -> Figure:
    """As the page first shows them: with the baseline that is chosen there."""
    base = chart["choose"]["chosen"] - 1 if chart["choose"] else -1
    values = [one["values"] for one in chart["series"]] if base < 0 else chart["differences"][base]
    bars = [{**one, "values": values[place]} for place, one in enumerate(chart["series"]) if place != base]
    shown = [(one["run"], one["name"], one["values"]) for one in palette.with_lanes(bars)]
    order = _sorted(shown, len(chart["rows"]), total=chart["total"])
    figure, axes, lane = _frame([chart["rows"][row] for row in order], len(shown), height=0.11)
    for at, (run, _, values) in enumerate(shown):
        known = [(place, values[row]) for place, row in enumerate(order) if values[row]]
        y = [place + lane(at) for place, _ in known]
        axes.barh(y, [value[0] for _, value in known], 0.7 / len(shown), color=palette.colour(run))
        bounds = [(place, value) for place, (_, value) in zip(y, known, strict=True) if value[1] is not None]
        for place, (_, low, high) in bounds:
            axes.plot([low, high], [place, place], color=INK, linewidth=0.8)
    if base < 0:
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        axes.set_xlim(left=0)
        axes.set_xlabel(chart["x"])
    else:
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g}" if value else "0")
        axes.set_xlabel(literal(f"points above {chart['series'][base]['name']}"))
    key(figure, [(name, palette.colour(run)) for run, name, _ in shown])
    return figure


def _sorted(shown: Sequence[tuple[int, str, Any]], count: int, *, total: bool) -> list[int]:
    """The largest first; a last row that sums them up stays last."""

    def mean(row: int) -> float:
        values = [cells[row][0] for _, _, cells in shown if cells[row]]
        return float(np.mean(values)) if values else -np.inf

    rows = sorted(range(count - total), key=lambda row: -mean(row))
    return [*rows, count - 1] if total else rows


def strips_figure(chart: dict[str, Any]) -> Figure:
    series = palette.with_lanes(chart["series"])
    figure, axes, lane = _frame(chart["rows"], len(series), height=0.2)
    lowest = 1.0
    for at, one in enumerate(series):
        colour = palette.colour(one["run"])
        for row, found in enumerate(one["values"]):
            if not found:
                continue
            y = row + lane(at)
            places = np.arange(len(found["points"]))
            jitter = ((places * 0.618034) % 1 - 0.5) * 0.5 / len(series)
            axes.scatter(found["points"], y + jitter, s=4, color=colour, alpha=0.5, linewidth=0)
            if found["quartiles"]:
                axes.boxplot(
                    [found["points"]], positions=[y], widths=0.5 / len(series), orientation="horizontal",
                    showfliers=False, showcaps=False, whis=0, manage_ticks=False,
                    boxprops={"linewidth": 0.8, "color": INK}, medianprops={"color": INK, "linewidth": 1},
                )  # fmt: skip
            if found["worst"]:
                axes.plot(found["worst"][0], y, "x", color=colour, markersize=5)
            if one["clean"]:
                axes.plot(one["clean"][0], y, "|", color=colour, markersize=9, markeredgewidth=2)
            known = [*found["points"], found["mean"][0], *(found["worst"] or [])[:1]]
            lowest = min(lowest, *known)
    percent_axis(axes, max(0.0, np.floor(10 * lowest - 0.2) / 10))
    axes.set_xlabel(chart["x"])
    key(figure, [(one["name"], palette.colour(one["run"])) for one in series])
    return figure


def stack_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    figure, axes, _ = _frame([bar["name"] for bar in view["bars"]], 1, height=0.3)
    for row, bar in enumerate(view["bars"]):
        before = 0.0
        for part, count in zip(view["parts"], bar["counts"], strict=True):
            share = count / bar["n"]
            axes.barh(row, share, 0.7, left=before, color=palette.PARTS[part["role"]], edgecolor="white", linewidth=0.6)
            if share > 0.06:
                ink = INK if part["role"] in ("wrong", "0", "1") else "white"
                place = before + share / 2
                axes.text(place, row, f"{100 * share:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
            before += share
    percent_axis(axes)
    axes.set_xlabel(chart["x"])
    key(figure, [(part["name"], palette.PARTS[part["role"]]) for part in view["parts"]])
    return figure


def dots_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    series = palette.with_lanes(view["series"])
    figure, axes, lane = _frame(view["rows"], len(series), height=0.1)
    for at, one in enumerate(series):
        colour = palette.colour(one["run"])
        for row in range(len(view["rows"])):
            clean, robust = (values and values[row] for values in (one["clean"], one["robust"]))
            y = row + lane(at)
            if clean and robust:
                axes.plot([robust[0], clean[0]], [y, y], color=colour, linewidth=0.8, alpha=0.5)
            if clean:
                axes.plot(clean[0], y, "o", color=colour, markersize=3.5, markerfacecolor="white")
            if robust:
                axes.plot(robust[0], y, "o", color=colour, markersize=3.8)
    percent_axis(axes, -0.01, 1.01)
    axes.set_xlabel(chart["x"] + " (open: clean, filled: under attack)" * any(one["robust"] for one in series))
    key(figure, [(one["name"], palette.colour(one["run"])) for one in series])
    return figure


def _frame(rows: Sequence[str], lanes: int, *, height: float) -> tuple[Figure, Axes, Any]:
    """A figure with a row for each name, from the top; `lane` says how far from a row's middle a run lies."""
    figure = Figure(figsize=(WIDTH, 0.8 + len(rows) * max(0.22, height * lanes + 0.08)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yticks(range(len(rows)), [literal(name) for name in brief(rows)])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)

    def lane(at: int) -> float:
        return (at - (lanes - 1) / 2) * 0.75 / lanes

    return figure, axes, lane
