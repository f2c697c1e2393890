"""The leaderboard of 300 runs in a real browser, from the disk: filters, sorting, chart and badges, also on a phone."""

from __future__ import annotations

import json
import re

import pytest
from looks import SCREENS
from test_report_page import HOSTILE_NAME, _is_local, browser, make_run  # noqa: F401

import hardtack as ht

from many_runs import make_light, make_many  # isort: skip  # beside run_folders, which test_report_page finds


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    base = tmp_path_factory.mktemp("leaderboard")
    make_many(base / "runs", 12)
    make_light(base / "runs", 287)
    make_run(base / "runs" / HOSTILE_NAME, seed=3)
    info = base / "cifar10" / "Linf" / "Rice2020Overfitting.json"
    info.parent.mkdir(parents=True)
    info.write_text(json.dumps({"clean_acc": "85.34", "autoattack_acc": "53.42", "eps": "8/255"}))
    return ht.write_leaderboard(base / "runs", base / "site", reported=[info], quiet=True).index


CHECKED = "Robust accuracy: autoattack · ℓ∞ ≤ 8/255 · cifar10/test · 200 images (9)"  # the runs with evidence


def open_site(browser, index, *, width=1280, scheme="light", address=""):  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.requests, page.complaints = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    context.route("**/*", lambda route: route.continue_() if _is_local(route.request.url) else route.abort())
    page.goto(index.as_uri() + address)
    page.wait_for_selector("#scatter svg a")
    return page


@pytest.fixture
def page(browser, site):  # noqa: F811
    opened = open_site(browser, site)
    yield opened
    assert opened.complaints == [] and not opened.evaluate("window.hacked")
    opened.context.close()


def names(page):
    return page.locator("#table tbody th a").all_inner_texts()


def column(page, place):
    texts = page.locator(f"#table tbody tr td:nth-child({place})").all_inner_texts()
    return [float(re.match(r"[\d.]+", text)[0]) for text in texts]


def test_it_opens_from_the_disk_and_shows_one_way_best_first(page, site):
    files = [url for url in page.requests if not url.startswith("data:")]
    assert len(files) == 3 and all(url.startswith(site.parent.as_uri()) for url in files)
    assert page.locator(".note").inner_text() == "287 numbers of 287 runs"
    values = column(page, 5)
    assert len(values) == 200 and values == sorted(values, reverse=True)
    page.get_by_role("button", name="Show 87 more of 287").click()
    assert len(names(page)) == 287 and page.locator("#table .more").is_hidden()
    assert page.locator("#scatter a:not(.quoted)").count() == 287 and page.locator("#scatter a.quoted").count() == 1


def test_the_front_is_that_of_the_numbers_with_evidence(page):
    assert "287 without evidence are no part of the front" in page.locator("#scatter figcaption").inner_text()
    assert page.locator("#scatter a.best").count() == page.locator("#scatter path.front").count() == 0
    page.get_by_label("Measured as").select_option(label=CHECKED)
    points = page.locator("#scatter a:not(.quoted)").evaluate_all(
        """links => links.map((link) => {
            const { clean, value, red } = numbers[link.dataset.row];
            return [link.classList.contains("best"), clean, value, red];
        })"""
    )
    sound = [(clean, value) for _, clean, value, red in points if not red]
    for best, clean, value, _ in points:
        beaten = any(c >= clean and v >= value and (c, v) != (clean, value) for c, v in sound)
        assert best == ((clean, value) in sound and not beaten)
    assert len(sound) == len(points) - 1 == 8
    assert page.locator("#scatter path.front").count() == 1
    assert str(sum(best for best, *_ in points)) in page.locator("#scatter figcaption").inner_text()


def test_filters_narrow_table_chart_and_address(page, browser, site):  # noqa: F811
    page.get_by_label("Measured as").select_option(label=CHECKED)
    assert sorted(names(page)) == [f"run-{number:03d}" for number in range(12) if number % 5]
    page.get_by_label("Architecture").select_option("xcit_s12")
    assert sorted(names(page)) == ["run-002", "run-006"] and page.locator("#scatter svg a:not(.quoted)").count() == 2
    again = open_site(browser, site, address="#" + page.url.partition("#")[2])
    assert sorted(names(again)) == ["run-002", "run-006"]
    again.context.close()
    page.get_by_role("button", name="Show all again").click()
    assert page.locator(".note").inner_text().startswith("287 numbers") and "#" not in page.url
    page.get_by_label("Parameters from").fill("20M")
    page.get_by_label("to", exact=True).fill("30M")
    assert set(page.locator("#table tbody td:nth-child(2)").all_inner_texts()) == {"xcit_s12"}
    page.get_by_label("Parameters from").fill("much")
    assert names(page) == [] and "300k, 5M" in page.locator(".note").inner_text()
    page.get_by_role("button", name="Show all again").click()
    page.get_by_label("Name contains").fill("light-01 vit")
    assert {name[:8] for name in names(page)} == {"light-01"} and len(names(page)) == 2
    page.get_by_label("Name contains").fill("")
    page.get_by_label("Threat").select_option("ℓ₂ ≤ 0.5")
    assert (
        set(names(page)) == {"run-001", "run-002", "run-011"} and "ℓ₂ ≤ 0.5" in page.locator("#scatter h3").inner_text()
    )


def test_all_ways_say_that_they_do_not_compare_and_heads_sort(page):
    page.get_by_label("Measured as").select_option("all")
    assert "do not compare" in page.locator(".note").inner_text()
    page.get_by_label("Name contains").fill("run-00")
    head = page.locator("#table thead th", has_text="Run")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending" and names(page)[:3] == ["run-000", "run-000", "run-001"]
    page.keyboard.press("Enter")  # the head that was clicked keeps the focus
    assert head.get_attribute("aria-sort") == "descending" and names(page)[0] == "run-009"
    flagged = page.locator("#table tr", has_text="run-007")
    assert flagged.locator(".badge.red:visible").inner_text() == "▲ zero_gradients"
    assert flagged.locator(".badge.green:visible").inner_text() == "✓ checked"
    page.get_by_label("Evidence").select_option("reported")
    page.get_by_label("Name contains").fill("")
    assert names(page) == ["Rice2020Overfitting"]


def test_a_red_flag_keeps_a_number_off_the_front(page):
    page.get_by_label("Measured as").select_option(label=CHECKED)
    flagged = page.locator("#scatter a.flagged")
    assert flagged.count() == 1 and "flagged" in flagged.get_attribute("aria-label")
    assert "red flag is no part of the front" in page.locator("#scatter figcaption").inner_text()
    flagged.hover(force=True)
    tip = page.locator("#scatter .tip").inner_text()
    assert "run-007" in tip and "zero_gradients" in tip and "Clean accuracy" in tip


def test_a_dot_leads_to_the_page_of_its_run_and_back(page):
    page.get_by_label("Measured as").select_option(label=CHECKED)
    page.locator("#scatter a.best").first.focus()
    name = page.locator("#scatter .tip b").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1")
    assert page.locator("h1").inner_text() == name and page.locator("table.board").count() >= 1
    page.get_by_role("link", name="← all runs").click()
    page.wait_for_selector("#scatter svg a")


def test_hostile_names_are_text(page):
    page.get_by_label("Measured as").select_option("all")
    page.get_by_label("Name contains").fill("script")
    assert set(names(page)) == {HOSTILE_NAME}
    page.locator("#table tbody th a").first.click()
    page.wait_for_selector(".plot svg")
    assert page.locator("h1").inner_text() == HOSTILE_NAME


@pytest.mark.parametrize("width, scheme", [*SCREENS, (390, "light")])
def test_nothing_runs_over_the_edge(browser, site, width, scheme):  # noqa: F811
    for address in ("", "#way=all", "#against=parameters"):
        page = open_site(browser, site, width=width, scheme=scheme, address=address)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, address)
        over = page.locator("#table td:visible, #table th:visible, .filters select, .filters input").evaluate_all(
            "cells => cells.filter((cell) => cell.getBoundingClientRect().right > innerWidth).length"
        )
        assert over == 0 and page.complaints == []
        page.context.close()
