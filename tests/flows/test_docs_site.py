"""The documentation's site as its reader opens it: built strictly, from disk, without network, wide and on a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from looks import SCREENS
from test_report_page import browser  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """What `make docs` builds; dead links and anchors, and pages outside of the menu, are errors."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install 'hardtack[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(params=SCREENS, ids=["wide", "phone"])
def visit(browser, request):  # noqa: F811
    """Opens a page; afterwards nothing was fetched from the network, and no script complained."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # a page that is left aborts what it was still loading
    page.on("requestfailed", lambda asked: "ABORTED" in str(asked.failure) or complaints.append(f"failed: {asked.url}"))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:", "about:")) or complaints.append(asked.url))

    def opened(path: Path):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        return page

    opened.wide = width > 1000
    yield opened
    assert complaints == []
    context.close()


def test_pages_open_and_link_from_disk(site, visit):
    page = visit(site / "index.html")
    page.locator("article a", has_text="in ten minutes").click()
    assert page.locator("h1").inner_text().startswith("In ten minutes")
    page.locator("article a", has_text="examples/first_steps.ipynb").wait_for()
    page = visit(site / "claims.html")
    page.locator("article a", has_text="claim_statistics.py").click()
    assert "def " in page.locator("article code").first.inner_text(), "source is shown as a page"
    page = visit(site / "settings.html")
    assert page.locator("table", has_text="objective.beta").count() > 0
    images = visit(site / "notebooks" / "first_steps.html").locator("article img")
    assert images.count() == 2
    assert all(images.nth(at).evaluate("image => image.naturalWidth") > 100 for at in range(2))


def test_the_search_works_without_a_server(site, visit):
    page = visit(site / "index.html")
    if not visit.wide:
        page.locator("label.md-header__button[for='__search']").click()
    page.locator("input.md-search__input").press_sequentially("smoothing.sigma")
    result = page.locator(".md-search-result__link", has_text="smoothing").first
    result.wait_for(timeout=20_000)
    result.click()
    page.wait_for_function("location.pathname.indexOf('index.html') < 0")
    assert "sigma" in page.locator("article").inner_text()
