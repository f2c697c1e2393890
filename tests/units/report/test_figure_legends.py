"""Figures name the runs that have a colour; where all are grey there is no legend, and nothing to complain of."""

import warnings

import pytest

from hardtack.report import palette
from hardtack.report.figures.sheet import brief
from hardtack.report.kinds.histogram import histogram_chart, histogram_figure, histogram_view
from hardtack.report.kinds.lines import lines_figure
from hardtack.report.kinds.scatter import scatter_figure
from hardtack.report.kinds.surface import surface_figure

GREY = len(palette.COLOURS)


def lines(runs):
    look = {"dash": False, "band": False, "marks": True, "points": [[0, 1.0], [1, 2.0]]}
    axis = {"label": "", "kind": "number"}
    return lines_figure({"x": axis, "y": axis, "series": [{"run": run, "name": f"run {run}", **look} for run in runs]})


def histogram(runs):
    view = histogram_view(
        "", [{"run": run, "name": f"run {run}", "values": [1.0, 2.0, 4.0]} for run in runs], x="", y=""
    )
    return histogram_figure(histogram_chart(id="", file="", title="", caption="", views=[view]), view)


def scatter(runs):
    place = {"x": 0.5, "y": 0.5, "low": 0.4, "high": 0.6}
    axis = {"label": "", "kind": "number"}
    view = {"x": axis, "y": axis, "series": [{"run": run, "name": f"run {run}", **place} for run in runs]}
    return scatter_figure({"views": [view]}, view)


def legends(figure):
    return [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend() is not None)]


@pytest.mark.parametrize("draw", [lines, histogram, scatter])
@pytest.mark.parametrize("count", [2, palette.SOLID + 1])
def test_a_legend_names_what_has_a_colour_or_is_not_there(draw, count):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not legends(draw(range(GREY, GREY + count)))
        (legend,) = legends(draw([0, *range(GREY, GREY + count - 1)]))
    grey = [f"{count - 1} more"] if draw is scatter else []  # of points one may ask who they are
    assert [text.get_text() for text in legend.get_texts()] == ["run 0", *grey]


@pytest.mark.parametrize("count, shape", [(1, (2, 1)), (3, (2, 3)), (4, (4, 2)), (5, (4, 3))])
def test_surfaces_fill_their_rows(count, shape):
    panel = {"axis": [-1.0, 0.0, 1.0], "values": [[1.0, 2.0, 1.0]] * 3, "name": "run", "said": ""}
    chart = {"panels": [panel] * count, "low": 1.0, "high": 2.0, "levels": [1.5], "x": "", "y": "", "z": "loss"}
    drawn = surface_figure(chart).axes[0].get_gridspec()
    assert (drawn.nrows, drawn.ncols) == shape


def test_long_names_and_many_leave_room_for_what_they_name():
    look = {"dash": False, "band": True, "marks": True, "points": [[0, 1.0, 0.5, 1.5], [1, 2.0, 1.5, 2.5]]}
    axis = {"label": "", "kind": "number"}
    for count, name in ((2, "a_very_long_name_of_a_run_{}_trades_beta6_awp_ema"), (GREY, "run {}")):
        series = [{"run": run, "name": name.format(run), **look} for run in range(count)]
        figure = lines_figure({"x": axis, "y": axis, "series": series})
        figure.draw_without_rendering()
        (legend,) = figure.legends
        inside = legend.get_window_extent().transformed(figure.transFigure.inverted())
        assert inside.x0 > 0.5 and inside.x1 <= 1 and inside.y0 >= 0 and inside.y1 <= 1
        assert figure.axes[0].get_position().width > 0.4
        assert all(len(text.get_text()) <= 30 for text in legend.get_texts())


def test_names_are_cut_where_they_stay_apart():
    tail, head = "_of_a_run_that_was_trained_by_trades", "a_run_with_a_name_that_goes_on_and_on_"
    assert brief(["short", "x" + tail]) == ["short", "…" + tail[-29:]]
    ends = [f"{letter}{head}{tail}" for letter in "ab"]
    assert [name[:2] for name in brief(ends)] == ["aa", "ba"] and all(len(name) <= 30 for name in brief(ends))
    alike = [f"{head}{letter}{tail}" for letter in "ab"]
    assert brief(alike) == alike
