"""Attention, saliency and visions on the page in a real browser."""

from __future__ import annotations

import pytest
from looks import SCREENS, looked_at
from test_report_page import HOSTILE_NAME, browser, plot_of, write_report  # noqa: F401

from attending import attended, saw, stared  # isort: skip  # beside run_folders, which test_report_page finds


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    parent = tmp_path_factory.mktemp("attending")
    for place, name in enumerate(("plain", HOSTILE_NAME)):
        attended(parent / name, level=0.7 + 0.2 * place)
        stared(parent / name, occluder=True)
        saw(parent / name, reached=0.5 + 0.25 * place)
    return write_report(parent)


@pytest.fixture(params=SCREENS)
def page(browser, report, request):  # noqa: F811
    yield from looked_at(browser, report, request.param)


def test_the_histogram_is_read_bin_by_bin_and_switched(page):
    plot = plot_of(page, "attention-0")
    assert plot.locator("polyline.curve").count() == 2 and plot.locator("path.mean").count() == 2
    plot.focus()
    page.keyboard.press("Home")
    first = plot.locator(".tip").inner_text()
    assert "cosine similarity" in first and "plain" in first and "mean 0.7" in first
    page.keyboard.press("End")
    assert plot.locator(".tip").inner_text() != first
    page.keyboard.press("Escape")
    assert plot.locator(".tip").is_hidden()
    drawn = plot.locator("polyline.curve").first.get_attribute("points")
    page.locator("select[data-for='attention-0']").select_option(label="mask by mask")
    assert plot.locator("polyline.curve").first.get_attribute("points") != drawn


def test_a_hidden_run_leaves_curves_and_pictures(page):
    maps, curves = plot_of(page, "attention-maps-0"), plot_of(page, "attention-similarity-0")
    assert maps.locator("image").count() == 2 * 5 and curves.locator("polyline.curve").count() == 2
    chips = page.locator("#attention .legend button")
    chips.first.click()
    assert maps.locator("image").count() == 2 * 3 and curves.locator("polyline.curve").count() == 1
    chips.last.click()
    assert "Every run is hidden" in curves.inner_text()
    assert maps.locator("image").count() == 2, "the images themselves are of no run"


def test_maps_of_another_layer_are_other_pictures(page):
    maps = plot_of(page, "attention-maps-0")
    last = maps.locator("image").last.get_attribute("href")
    page.locator("select[data-for='attention-maps-0']").select_option(label="blocks.0")
    assert maps.locator("image").last.get_attribute("href") != last
    maps.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = maps.locator(".tip").inner_text()
    assert "image 5, cat" in tip and "occluded" in tip and "blocks.0" in tip


def test_pictures_are_square_and_inside_their_card(page):
    for id in ("attention-maps-0", "saliency-0", "visions-0"):
        plot = plot_of(page, id)
        frame = plot.bounding_box()
        boxes = [image.bounding_box() for image in plot.locator("image").all()]
        assert all(abs(box["width"] - box["height"]) < 1 and box["width"] > 40 for box in boxes), id
        assert all(
            frame["x"] - 1 <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] + 1 for box in boxes
        )


def test_what_is_saved_holds_its_pictures(page):
    with page.expect_download() as saved:
        page.locator("figure:has([data-chart='visions-0']) button.save").click()
    text = saved.value.path().read_text()
    assert text.count("<image") == 6 and "data:image/png" in text and "Feature visualization from noise" in text


def test_overlaps_and_chance_are_bars(page):
    plot = plot_of(page, "saliency-overlap-0")
    assert "by chance" in plot.locator("text").all_text_contents()
    plot.focus()
    page.keyboard.press("End")
    tip = plot.locator(".tip").inner_text()
    assert "by chance" in tip and "25.0%" in tip


def test_the_colours_of_heads_say_what_they_run_through(page):
    plot = plot_of(page, "attention-heads-0")
    low, _, high = (float(text.rstrip("%")) for text in plot.locator("text", has_text="%").all_text_contents())
    assert 50 < low < high <= 100
    share = (100 * page.evaluate("charts['attention-heads-0'].views[0].cells[0][0][0]") - low) / (high - low)
    wanted = page.evaluate(f"heatColour(document.querySelector('[data-chart=attention-heads-0]'), {share}).join()")
    assert plot.locator("rect.cell").first.get_attribute("fill") == f"rgb({wanted})"


def test_marks_of_a_narrow_scale_are_told_apart(page):
    assert page.evaluate("writtenApart([0.9989, 0.99895, 0.999])") == ["0.9989", "0.99895", "0.999"]
    assert page.evaluate("writtenApart([0, 0.25, 12000])") == ["0", "0.25", "1.2e4"]


def test_one_image_is_no_plural(page):
    assert page.evaluate("[1, 2, 1200].map(imageCount)") == ["1 image", "2 images", "1,200 images"]
