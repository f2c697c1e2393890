"""Every file, folder, heading and module that README.md, CHANGELOG.md and docs/*.md mention exists."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w/.-])((?:src/hardtack|tests|benchmarks|recipes|docs)/[\w./*-]*\w|examples/\w+\.py)")
MODULE = re.compile(r"(?<![\w/.-])hardtack(?:\.[a-z_]\w*)+(?![\w/])")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def problem_of_link(page: Path, link: str) -> str | None:
    """What is wrong with a relative link, or None."""
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists():
        return f"{link}: there is no {file}"
    if anchor and anchor not in anchors(target):
        return f"{link}: {target.name} has no such heading; it has {sorted(anchors(target))}"
    return None


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module of the package, or a name in the source of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        if spec is not None and spec.origin is not None:
            attribute = parts[length : length + 1]
            return not attribute or re.search(rf"\b{attribute[0]}\b", Path(spec.origin).read_text()) is not None
    return False


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_relative_links_and_their_anchors_exist(page):
    links = [link for link in LINK.findall(FENCE.sub("", page.read_text())) if "://" not in link]
    assert not [problem for link in links if (problem := problem_of_link(page, link))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_are_mentioned_exist(page):
    paths = set(PATH.findall(page.read_text()))
    assert not [path for path in paths if not any(ROOT.glob(path))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_names_that_are_mentioned_exist(page):
    names = set(MODULE.findall(page.read_text()))
    assert not [name for name in names if not module_exists(name)]


def test_a_broken_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Read me: first\n\n[a](#read-me-first) [b](#second) [c](missing.md)\n")
    assert problem_of_link(page, "#read-me-first") is None
    assert "no such heading" in str(problem_of_link(page, "#second"))
    assert "there is no missing.md" in str(problem_of_link(page, "missing.md"))
    assert module_exists("hardtack.base.registry.attacks")
    assert not module_exists("hardtack.base.registry.nothing_of_this_name")
    assert not module_exists("hardtack.no_such_module")
