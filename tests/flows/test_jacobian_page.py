"""Spectra and growth on the page in a real browser."""

from __future__ import annotations

import pytest
from looks import SCREENS, looked_at
from test_report_page import HOSTILE_NAME, browser, make_run, plot_of, read_first, write_report  # noqa: F401

from spectral import spectral  # isort: skip  # beside run_folders, which test_report_page finds


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    parent = tmp_path_factory.mktemp("spectral")
    for place, name in enumerate(("plain", "smooth", HOSTILE_NAME)):
        folder = make_run(parent / name, seed=place, examples=False)
        spectral(folder, level=(2.0, 1.5, 40.0)[place], layers=4 + place)
    spectral(parent / "few", level=1.2, few=True)
    return write_report(parent)


@pytest.fixture(params=SCREENS)
def page(browser, report, request):  # noqa: F811
    yield from looked_at(browser, report, request.param)


def test_violins_switch_and_hide_with_their_run(page):
    plot = plot_of(page, "jacobian-0")
    assert plot.locator("polygon.violin").count() == 4 + 5 + 6
    assert "blocks.0" in read_first(page, plot) and "median" in read_first(page, plot)
    page.locator("select[data-for='jacobian-0']").select_option(index=1)
    assert plot.locator("polygon.violin").count() == 3 + 4 + 5
    page.locator("#jacobian .legend button").first.click()
    assert plot.locator("polygon.violin").count() < 3 + 4 + 5


def test_violins_lie_inside_their_chart(page):
    plot = plot_of(page, "jacobian-0")
    outside = plot.evaluate(
        """plot => {
            const frame = plot.getBoundingClientRect();
            const boxes = [...plot.querySelectorAll("polygon.violin")].map((one) => one.getBoundingClientRect());
            return boxes.filter((box) => box.left < frame.left || box.right > frame.right + 1 || box.width < 1).length;
        }"""
    )
    assert outside == 0


def test_few_images_are_dots(page):
    plot = plot_of(page, "jacobian-1")
    assert plot.locator("polygon.violin").count() == 0 and plot.locator("circle.mask").count() == 3 * 4


def test_growth_and_its_limit_are_curves(page):
    plot = plot_of(page, "growth-adversarial-0")
    assert plot.locator("polyline.curve").count() == 6
    assert plot.locator("polyline.curve[stroke-dasharray]").count() == 3
    assert "after step = 0" in read_first(page, plot)
    assert plot_of(page, "growth-depth-0").locator("circle, rect").count() >= 3
