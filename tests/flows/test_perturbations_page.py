"""Perturbations on the page in a real browser."""

from __future__ import annotations

import pytest
from looks import SCREENS, looked_at
from test_report_page import HOSTILE_NAME, browser, plot_of, read_first, write_report  # noqa: F401

from perturbed import perturbed  # isort: skip  # beside run_folders, which test_report_page finds


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    parent = tmp_path_factory.mktemp("perturbed")
    perturbed(parent, ("plain", HOSTILE_NAME))
    return write_report(parent)


@pytest.fixture(params=SCREENS)
def page(browser, report, request):  # noqa: F811
    yield from looked_at(browser, report, request.param)


def test_pictures_switch_to_grey_and_hide_with_their_run(page):
    plot = plot_of(page, "perturbations-0")
    assert plot.locator("image").count() == 3 * 8
    colourful = plot.locator("image").last.get_attribute("href")
    page.locator("select[data-for='perturbations-0']").select_option(label="in grey")
    assert plot.locator("image").last.get_attribute("href") != colourful
    page.locator("#perturbations .legend button").first.click()
    assert plot.locator("image").count() == 2 * 8


def test_the_matrix_reads_who_made_and_who_judged(page):
    plot = plot_of(page, "perturbations-seen-0")
    assert plot.locator("rect.cell").count() == 4
    tip = read_first(page, plot)
    assert ", judged by" in tip and "moved images" in tip and "%" in tip
    select = page.locator("select[data-for='perturbations-seen-0']")
    select.select_option(index=1)
    assert plot.locator("rect.cell").count() == 2 and "as they are, judged by" in read_first(page, plot)


def test_the_images_own_spectrum_is_drawn_whatever_is_hidden(page):
    plot = plot_of(page, "perturbations-spectrum-0")
    assert plot.locator("polyline.curve").count() == 3 and "the images" in read_first(page, plot)
    for chip in page.locator("#perturbations .legend button").all():
        chip.click()
    assert plot.locator("polyline.curve").count() == 1
    stroke = plot.locator("polyline.curve").evaluate("line => getComputedStyle(line).stroke")
    assert stroke.startswith("rgb") and stroke != "rgb(0, 0, 0)"
