"""Weights and landscapes in a real browser: contours and 3-D that turns, read by pointer and keys, on one scale."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from looks import SCREENS, looked_at
from test_report_page import HOSTILE_NAME, browser, make_run, write_report  # noqa: F401
from weighed import LOOKS, look_at


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    parent = tmp_path_factory.mktemp("weighed")
    for place, name in enumerate(("plain", "robust", HOSTILE_NAME)):
        look_at(make_run(parent / name, seed=place, examples=False), seed=place, looks=LOOKS[:2])
    return write_report(parent)


@pytest.fixture(params=SCREENS, ids=["wide", "phone"])
def page(browser, report, request):  # noqa: F811
    yield from looked_at(browser, report, request.param)


def faces(plot):
    return plot.locator(".face").evaluate_all("all => all.map(one => one.getAttribute('d'))")


def drag(page, plot, right):
    plot.evaluate("plot => plot.scrollIntoView({ block: 'center', behavior: 'instant' })")
    box = plot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right, y, steps=3)
    page.mouse.up()


def test_contours_are_read_point_by_point(page):
    figure = page.locator("#landscape figure.surface").first
    plot = figure.locator(".plot")
    assert plot.locator(".here").count() == 3 and plot.locator(".face").count() == 0
    plot.focus()
    page.keyboard.press("ArrowRight")
    tip = plot.locator(".tip")
    assert tip.locator("b").first.inner_text() == f"{HOSTILE_NAME} at -1, 1", "at the upper left"
    page.keyboard.press("ArrowDown")
    assert tip.locator("b").first.inner_text() == f"{HOSTILE_NAME} at -1, 0.5"
    page.keyboard.press("End")
    assert tip.locator("b").first.inner_text() == "robust at 1, -1" and "loss" in tip.inner_text()
    page.locator("#landscape .chip", has_text="robust").click()
    assert plot.locator(".here").count() == 2


def test_the_solid_view_turns_by_dragging_and_by_keys(page):
    figure = page.locator("#landscape figure.surface").first
    plot = figure.locator(".plot")
    figure.locator("select").select_option(label="3-D")
    first = faces(plot)
    assert len(first) == 3 * 16 and plot.locator(".here").count() == 0
    drag(page, plot, 80)
    second = faces(plot)
    assert sorted(second) != sorted(first), "dragged"
    page.mouse.move(1, 1)
    plot.focus()
    page.keyboard.press("Shift+ArrowUp")
    third = faces(plot)
    assert sorted(third) != sorted(second) and plot.locator(".tip").is_hidden(), "turned, not read"
    page.keyboard.press("ArrowRight")
    assert faces(plot) == third and plot.locator(".tip").is_visible()
    assert "NaN" not in "".join(third)


def test_what_is_saved_is_turned_as_on_the_page(page):
    figure = page.locator("#landscape figure.surface").first
    figure.locator("select").select_option(label="3-D")
    drag(page, figure.locator(".plot"), 60)
    with page.expect_download() as download:
        figure.locator("button.save").click()
    root = ElementTree.parse(download.value.path()).getroot()
    drawn = list(root.iter("{http://www.w3.org/2000/svg}path"))
    assert len(drawn) >= 3 * 16 and "Shift" not in "".join(root.itertext())


def test_sparsity_stands_against_accuracy(page):
    plot = page.locator("#weights figure.scatter .plot")
    assert plot.locator("circle").count() == 3
    plot.focus()
    page.keyboard.press("ArrowRight")
    tip = plot.locator(".tip").inner_text()
    assert "all weights" in tip and "%" in tip
    assert "too few for a correlation" in page.locator("#weights figure.scatter figcaption").inner_text()
