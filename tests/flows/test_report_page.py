"""The report in a real headless Chromium, from file://, with the network shut."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hardtack.report import write_report
from hardtack.results import append_result

sys.path.insert(0, str(Path(__file__).parents[1] / "units" / "report"))
from run_folders import HOSTILE_CLASS, HOSTILE_NAME, make_run, make_runs, result
from surveyed import attacked, calibrated, corrupted, flipping, followed, measured, occluded

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def missing(reason: str) -> None:
    if os.environ.get("HARDTACK_REQUIRE_BROWSER") == "1":
        pytest.fail(f"HARDTACK_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        missing("no chromium is installed (Debian: apt install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed (pip install 'hardtack[dev]')")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three runs as usual, one with a hostile name, and one number that compares with none of the others."""
    parent = tmp_path_factory.mktemp("runs")
    runs = make_runs(parent)
    make_run(parent / HOSTILE_NAME, seed=3, classes=[HOSTILE_CLASS] * 10)
    made = {"evaluation": "pgd-100", "suite": "pgd", "threat": "linf:8/255", "protocol": "pgd-100"}
    append_result(runs[0], result(runs[0], "robust_accuracy", np.arange(360) % 3 == 0, **made))
    return write_report(parent)


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory):
    """Two runs with everything that has a chart, and a name that would like to be markup."""
    parent = tmp_path_factory.mktemp("surveyed")
    for place, name in enumerate(("plain", HOSTILE_NAME)):
        folder = make_run(parent / name, seed=place, examples=False)
        corrupted(folder, level=0.9 - 0.1 * place)
        flipping(folder, level=0.08 - 0.03 * place)
        occluded(folder, level=0.95 - 0.05 * place)
        attacked(folder, standing=100 + 50 * place, wrong=20, classes=tuple(f"class {i}" for i in range(24)))
        calibrated(folder, gap=0.15 - 0.1 * place)
        followed(folder, {"Clean": 0.9, "FGSM": 0.4, "PGD-l2": 0.3})
    return write_report(parent)


def open_page(browser, path, *, width=1280, scheme="light"):
    """The page in a fresh context, with every request and complaint written down."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.requests, page.complaints = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    context.route("**/*", lambda route: route.continue_() if _is_local(route.request.url) else route.abort())
    page.goto(path.as_uri())
    page.wait_for_selector(".plot svg")
    return page


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:"))


@pytest.fixture
def page(browser, report):
    opened = open_page(browser, report)
    yield opened
    opened.context.close()


def test_it_opens_offline_without_a_complaint(page, report):
    assert [url for url in page.requests if not url.startswith("data:")] == [report.as_uri()]
    assert page.complaints == []


def test_headers_sort_by_mouse_and_keyboard(page):
    table = page.locator("table.board").first
    names = lambda: table.locator("tbody th .name").all_inner_texts()  # noqa: E731
    robust, clean = table.locator("thead th").nth(2), table.locator("thead th").nth(1)
    assert robust.get_attribute("aria-sort") == "descending"
    best_first = names()
    robust.locator("button").click()
    assert robust.get_attribute("aria-sort") == "ascending" and names() == best_first[::-1]
    clean.locator("button").focus()
    page.keyboard.press("Enter")
    assert clean.get_attribute("aria-sort") == "descending" and robust.get_attribute("aria-sort") == "none"
    values = [float(v) for v in table.locator("tbody td:nth-child(2)").evaluate_all("a=>a.map(d=>d.dataset.value)")]
    assert values == sorted(values, reverse=True)
    table.locator("thead button").first.click()
    assert names() == [HOSTILE_NAME, "adversarial", "standard", "trades"]


def test_what_is_not_comparable_stands_apart(page):
    protocols = page.locator("#leaderboard .protocol").all_inner_texts()
    assert len(protocols) == 2 and sum("pgd-100" in text for text in protocols) == 1


def test_one_run_has_one_card_and_no_check_is_said_to_have_passed(browser, tmp_path):
    """Four numbers that nothing on the page compares with: rows of one card, on a phone too."""
    folder = make_run(tmp_path / "trades")
    corrupted(folder, level=0.8)
    flipping(folder, level=0.05)
    for width in (1280, 390):
        page = open_page(browser, write_report(folder), width=width)
        assert page.locator("#leaderboard .card").count() == 1 and page.locator("#leaderboard table").count() == 1
        rows = page.locator("#leaderboard tbody tr")
        assert rows.count() == 4 and page.locator("#leaderboard h2").inner_text() == "Results"
        assert "Robust accuracy ℓ∞ ≤ 8/255" in rows.first.inner_text() and "72.8%" in rows.first.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width and page.complaints == []
        warnings = page.locator(".headline", has_text="Warnings")
        assert "every check passed" not in page.content()
        said, card = warnings.locator("small").bounding_box(), warnings.bounding_box()
        assert said["x"] + said["width"] < card["x"] + card["width"], "long words stay in their card"
        assert "PGD alone" in warnings.inner_text() and "careful" in warnings.get_attribute("class")
        assert "attacks by gradients alone" in page.locator("#warnings").inner_text()
        page.context.close()


def test_curves_show_values_and_bands_under_the_pointer(page):
    plot = page.locator("#curves .plot")
    assert plot.locator("polyline.curve").count() == 4 and plot.locator("polygon.band").count() == 4
    box = plot.bounding_box()
    plot.hover(position={"x": box["width"] * 0.31, "y": box["height"] / 2})
    tip = plot.locator(".tip").inner_text()
    assert "ε = 8/255" in tip and "trades" in tip and "72.8%" in tip and "68.0–77.1%" in tip
    page.mouse.move(5, 5)
    assert plot.locator(".tip").is_hidden()
    plot.focus()
    page.keyboard.press("End")
    assert "ε = 32/255" in plot.locator(".tip").inner_text()


def test_the_legend_hides_a_run(page):
    chip = page.locator("#curves .chip", has_text="trades")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert page.locator("#curves polyline.curve").count() == 3
    chip.click()
    assert page.locator("#curves polyline.curve").count() == 4


def test_examples_are_crisp_and_state_their_size(page):
    picture = page.locator(".example img").first
    picture.scroll_into_view_if_needed()
    assert picture.is_visible() and picture.evaluate("i => i.naturalWidth") == 32
    assert picture.evaluate("i => getComputedStyle(i).imageRendering") == "pixelated"
    assert page.locator(".attempt .size").first.inner_text().startswith("size 7.")
    assert page.locator("img").evaluate_all("a => a.every(i => i.complete && i.naturalWidth > 0)")


def test_warnings_are_visible(page):
    badge = page.locator("table.board .badge.red").first
    assert badge.is_visible() and "zero-gradient" in badge.inner_text()
    assert page.locator("#warnings .warning.red").is_visible()


def test_names_stay_text(page):
    assert page.evaluate("window.hacked") is None
    assert page.locator(".name", has_text=HOSTILE_NAME).first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(browser, report, scheme):
    page = open_page(browser, report, width=375, scheme=scheme)
    for details in page.locator("details").all():
        details.evaluate("d => d.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 19, 15)"
    assert dark == (scheme == "dark") and page.complaints == []
    page.context.close()


def test_a_phone_shows_that_columns_are_cut_off_and_reaches_them(browser, report):
    page = open_page(browser, report, width=420)
    area = page.locator("#leaderboard .scroll").first
    hint = page.locator("#leaderboard .hint").first
    assert hint.is_visible() and "cut" in area.get_attribute("class")
    assert "gradient" in area.evaluate("a => getComputedStyle(a).backgroundImage")
    name, robust = area.locator("tbody th").first, area.locator("tbody td:nth-child(3)").first
    place = name.bounding_box()["x"]
    robust.evaluate("r => r.closest('.scroll').scrollLeft = r.offsetLeft - r.parentElement.cells[0].offsetWidth - 16")
    shown = robust.locator(".value").bounding_box()
    assert name.bounding_box()["x"] + name.bounding_box()["width"] <= shown["x"] < shown["x"] + shown["width"] <= 420
    area.evaluate("a => { a.scrollLeft = a.scrollWidth }")
    page.locator("#leaderboard .scroll:not(.cut)").first.wait_for()  # the page forbids functions made of text
    assert not hint.is_visible() and name.bounding_box()["x"] == pytest.approx(place, abs=16), "names stay"
    page.context.close()
    wide = open_page(browser, report)
    assert not wide.locator("#leaderboard .hint").first.is_visible()
    wide.context.close()


CHARTS = (
    "curve-0", "breakdown-0", "corruptions-0", "corruption-types-0", "flips-0", "occlusion-0", "confidence-0",
    "classes-0", "calibration-0", "training-loss",
)  # fmt: skip


@pytest.fixture(params=["light", "dark"])
def charts(browser, surveyed, request):
    opened = open_page(browser, surveyed, scheme=request.param)
    yield opened
    assert opened.complaints == [] and opened.evaluate("window.hacked") is None
    opened.context.close()


def plot_of(page, chart):
    return page.locator(f".plot[data-chart='{chart}']")


def test_the_heat_map_shows_readable_numbers_and_switches_runs(charts):
    plot = plot_of(charts, "corruptions-0")
    numbers = plot.locator("text.on-cell")
    assert numbers.count() == 16 * 6 and plot.locator("rect.cell").count() == 16 * 6
    pairs = plot.evaluate(
        """p => [...p.querySelectorAll("rect.cell")].map(c =>
            [getComputedStyle(c).fill, getComputedStyle(c.nextElementSibling).fill])"""
    )
    for cell, text in pairs:
        assert contrast(*(_luminance_of(colour) for colour in (cell, text))) >= 4.5, (cell, text)
    assert numbers.first.text_content() == "78.0"
    charts.locator("select[data-for='corruptions-0']").select_option(label="plain")
    assert numbers.first.text_content() == "88.0"
    plot.focus()
    for key in ("Home", "ArrowDown", "ArrowRight"):
        charts.keyboard.press(key)
    tip = plot.locator(".tip").inner_text()
    assert "shot noise, severity 2" in tip and "84.4%" in tip and "82.4–86.4%" in tip


def test_the_baseline_switches(charts):
    plot, select = plot_of(charts, "corruption-types-0"), charts.locator("select[data-for='corruption-types-0']")
    assert select.locator("option").all_inner_texts() == ["nothing", HOSTILE_NAME, "plain"]
    axis = lambda: plot.locator("text").last.text_content()  # noqa: E731
    assert axis().startswith("points above") and plot.locator("g.one").count() == 1
    first = read_first(charts, plot)
    select.select_option(label="plain")
    second = read_first(charts, plot)
    assert "+10.0" in first and "−10.0" in second
    select.select_option(label="nothing")
    assert axis() == "Accuracy under corruptions" and plot.locator("g.one").count() == 2


def read_first(page, plot):
    plot.focus()
    page.keyboard.press("Home")
    return plot.locator(".tip").inner_text()


def test_every_chart_saves_as_a_picture_of_its_own(charts, tmp_path):
    for chart in CHARTS:
        figure = charts.locator("section:not(#pair) figure", has=plot_of(charts, chart))
        with charts.expect_download() as download:
            figure.locator("button.save").click()
        assert download.value.suggested_filename == f"{chart}.svg"
        download.value.save_as(tmp_path / "saved.svg")
        text = (tmp_path / "saved.svg").read_text()
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("width") == "720"
        words = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
        assert words[0].startswith(figure.locator("h3").inner_text())
        drawn = sum(item.tag.endswith(("rect", "circle", "polyline")) for item in root.iter())
        assert drawn > 3 and "var(" not in text and "class=" not in text
        assert "rgb(255, 255, 255)" in text, "on white, by day and by night"


def test_charts_are_read_by_pointer_and_keys(charts):
    for chart, said in (
        ("breakdown-0", "wrong without attack"), ("flips-0", "scale"), ("occlusion-0", "clean 9"),
        ("classes-0", "robust"),
        ("calibration-0", "mean confidence"),
    ):  # fmt: skip
        plot = plot_of(charts, chart)
        assert said in read_first(charts, plot), chart
        charts.keyboard.press("Escape")
        assert plot.locator(".tip").is_hidden()
        plot.scroll_into_view_if_needed()
        plot.hover()
        assert plot.locator(".tip").is_visible()


def test_many_classes_fold_away_and_sort(charts):
    table = charts.locator("#classes table").first
    assert not table.is_visible() and plot_of(charts, "classes-0").locator("text.row").count() == 10
    charts.locator("#classes summary").click()
    assert table.locator("tbody tr").count() == 24
    head = table.locator("thead th").nth(2)
    head.locator("button").click()
    values = [float(text.rstrip("%")) for text in table.locator("tbody td:nth-child(3)").all_inner_texts()]
    assert head.get_attribute("aria-sort") == "descending" and values == sorted(values, reverse=True)


def test_charts_fit_a_phone(browser, surveyed):
    page = open_page(browser, surveyed, width=390)
    for details in page.locator("details").all():
        details.evaluate("d => d.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for chart in CHARTS:
        box = plot_of(page, chart).locator("svg").first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    small = page.locator(".plot text").evaluate_all(
        "all => Math.min(...all.map(t => t.getBoundingClientRect().height))"
    )
    assert small >= 11, "text keeps its size"
    page.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_scale_of_differences_has_a_labelled_mark_on_each_side_it_reaches_to(browser, tmp_path, width):
    """One type is 5 points better and another 1 point worse, each ±2: from −3 to +7."""
    for name, values in (("base", (0.50, 0.50)), ("other", (0.55, 0.49))):
        (tmp_path / name).mkdir()
        for type_, value in zip(("fog", "snow"), values, strict=True):
            made = {"suite": "corruptions", "attack": f"{type_}/1", "attack_settings": {"type": type_, "severity": 1}}
            append_result(tmp_path / name, measured(tmp_path / name, "corrupted_accuracy", value, half=0.014, **made))
    page = open_page(browser, write_report(tmp_path), width=width)
    words = plot_of(page, "corruption-types-0").locator("text").all_text_contents()
    marks = [word for word in words if word[0] in "+−" and word[1:].replace(".", "").isdigit()]
    assert "0" in words and {word[0] for word in marks} == {"+", "−"}, words
    page.context.close()


def test_eight_columns_of_a_protocol_fit_a_screen_with_their_warnings(browser, tmp_path):
    (tmp_path / "vit").mkdir()
    names = ["clean", "PGD-linf", "AA-linf", "PGD-l2", "PGD-l1", "worst case", "AA-l1", "worst case with AA-l1"]
    for place, name in enumerate(names):
        made = {"suite": "protocol", "protocol": "p 1", "evaluation": "p", "extra": {"column": name, "place": place}}
        append_result(tmp_path / "vit", measured(tmp_path / "vit", "robust_accuracy", 0.5, half=0.1, **made))
    calibrated(tmp_path / "vit", gap=0.1)
    page = open_page(browser, write_report(tmp_path))
    area = page.locator("#protocols .scroll")
    assert area.evaluate("a => a.scrollWidth <= a.clientWidth") and not page.locator("#protocols .hint").is_visible()
    page.context.close()


def test_a_phone_shows_the_first_numbers_without_scrolling(browser, report):
    page = open_page(browser, report, width=390)
    row = page.locator("#leaderboard tbody tr").first
    name = row.locator("th").bounding_box()
    for cell in (1, 2):
        number = row.locator("td").nth(cell - 1).locator(".range").bounding_box()
        assert name["x"] + name["width"] <= number["x"] and number["x"] + number["width"] <= 390 - 16
    page.context.close()


def test_the_gap_of_calibration_is_seen_whatever_the_colour_of_the_run(charts):
    plot = plot_of(charts, "calibration-0")
    looks = plot.evaluate("p => ['gap', 'hatch', 'accuracy'].map(c => getComputedStyle(p.querySelector('.' + c)))"
                          ".map(s => s.stroke + s.fill)")  # fmt: skip
    ink = plot.evaluate("p => getComputedStyle(p.querySelector('text.strong')).fill")
    assert looks[0].startswith(ink) and looks[1].startswith(ink) and not looks[2].endswith(ink)
    assert plot.locator("path.hatch").first.get_attribute("d").startswith("M")


def test_past_twelve_runs_the_others_are_faded(browser, tmp_path):
    for number in range(14):
        make_run(tmp_path / f"run-{number:02d}", seed=number, examples=False, metrics=False)
    page = open_page(browser, write_report(tmp_path))
    strokes = page.locator("#curves polyline.curve").evaluate_all(
        "all => all.map(one => [getComputedStyle(one).stroke, one.getAttribute('stroke-dasharray')].join())"
    )
    assert len(strokes) == 14 and len(set(strokes)) == 13 and strokes[0] == strokes[1], "two faded, drawn first"
    assert page.locator("#curves g.faded").count() == 2 and page.locator("#curves polygon.band").count() == 12
    assert page.complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, report, scheme):
    """WCAG AA (4.5:1) of every colour used for text against the surface it stands on."""
    page = open_page(browser, report, scheme=scheme)
    pairs = [
        ("ink", "paper"),
        ("ink-2", "paper"),
        ("ink-3", "paper"),
        ("ink-3", "surface"),
        ("accent", "paper"),
    ]
    pairs += [("red", "red-soft"), ("yellow", "yellow-soft"), ("green", "green-soft")]
    read = "name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()"
    for text, under in pairs:
        first, second = (_luminance(page.evaluate(read, name)) for name in (text, under))
        ratio = contrast(first, second)
        assert ratio >= 4.5, f"{text} on {under} in {scheme}: {ratio:.2f}"
    page.context.close()


def contrast(first: float, second: float) -> float:
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def _luminance(colour: str) -> float:
    return _luminance_of(f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})")


def _luminance_of(colour: str) -> float:
    """Of `rgb(1, 2, 3)`."""
    channels = np.array([int(value) for value in colour[4:-1].split(",")]) / 255
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
