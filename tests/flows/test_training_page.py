"""The report of training in a real browser: two runs chosen, warnings marked, masks drawn over their images."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_report_page import HOSTILE_NAME, browser, make_run, open_page, plot_of, write_report  # noqa: F401

from hardtack.results import write_arrays

WARNING = {"kind": "warning", "step": 120, "epoch": 11, "warning": "catastrophic_overfitting"}


@pytest.fixture
def page(browser, tmp_path):  # noqa: F811
    for place, name in enumerate(("adversarial", "standard", HOSTILE_NAME)):
        folder = make_run(tmp_path / name, seed=place, examples=False)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(WARNING) + "\n" if place == 0 else "")
    grey = np.full((3, 32, 32, 3), 90, dtype=np.uint8)
    for epoch in (1, 2):
        mask = np.arange(16).reshape(1, 4, 4).repeat(3, axis=0) < 2 * epoch
        write_arrays(tmp_path / "standard" / "masks" / f"epoch_{epoch:04d}.npz", {"images": grey, "masks": mask})
    opened = open_page(browser, write_report(tmp_path))
    yield opened
    assert opened.complaints == [] and opened.evaluate("window.hacked") is None
    opened.context.close()


def test_two_runs_are_chosen_and_told_apart(page):
    section = page.locator("#pair")
    first, second = section.locator("select").all()
    assert first.locator("option").all_inner_texts() == [HOSTILE_NAME, "adversarial", "standard"]
    first.select_option(label="adversarial")
    second.select_option(label="standard")
    facts, differing, single = section.locator("table").all()
    heads = facts.locator("thead th").all_inner_texts()[1:]
    assert heads == ["adversarial", "standard"]
    rows = {row.split("\t")[0]: row.split("\t")[1:] for row in facts.locator("tbody").inner_text().splitlines()}
    assert rows["Warnings"] == ["catastrophic overfitting", "none"]
    assert differing.locator("tbody tr").all_inner_texts() == [
        "objective.name\tadversarial\tstandard", "runtime.seed\t0\t1",
    ]  # fmt: skip
    assert section.locator("summary").inner_text() == "Settings that only one of the two runs has: 2"
    section.locator("summary").click()
    assert "objective.attack.steps\t7\t—" in single.locator("tbody").inner_text()
    loss = section.locator(".plot[data-chart='training-loss']")
    assert loss.locator("polyline").count() == 2, "the third run is not drawn"
    second.select_option(label="adversarial")
    assert loss.locator("polyline").count() == 1 and section.locator(".alike").is_visible()
    assert plot_of(page, "training-loss").first.locator("polyline").count() == 3, "the other charts keep all runs"


def test_a_warning_stands_on_its_curve_and_masks_on_their_images(page):
    plot = plot_of(page, "training-validation").first
    assert plot.locator(".warned").count() == 1
    assert "catastrophic-overfitting" in page.locator("#warnings").inner_text()
    page.locator("#training .chip", has_text="adversarial").click()
    assert plot.locator(".warned").count() == 0, "it goes with its run"
    tile = page.locator("#masks td .masked").first
    box = tile.bounding_box()
    assert box["width"] == pytest.approx(box["height"], abs=1) and box["width"] > 30
    hidden = tile.locator("path").bounding_box()
    assert hidden["width"] == pytest.approx(box["width"] / 2, abs=1.5), "two of four patches of the first row"
    assert hidden["height"] == pytest.approx(box["height"] / 4, abs=1.5)
    assert "data:image/png" in tile.evaluate("t => getComputedStyle(t).backgroundImage")
