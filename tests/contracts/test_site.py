"""The documentation as a site: every page is in its menu, its reference is the code's, its figures are the papers'."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import hardtack
from hardtack.base import registry
from hardtack.studies.study import load_study
from hardtack.studies.study_files import list_studies

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without calling the Python functions that it names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def part(name):
    spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / "_site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generated():
    """The pages that are made while the site is built, by their paths."""
    notebooks = {f"notebooks/{file.stem}.md": part("notebook_pages").notebook_page(file)[0] for file in NOTEBOOKS}
    return part("reference").pages() | part("papers").pages() | notebooks


def menu_pages(entry):
    if isinstance(entry, str):
        return [entry]
    return [page for below in (entry.values() if isinstance(entry, dict) else entry) for page in menu_pages(below)]


def test_every_page_is_in_the_menu_once(generated):
    menu = menu_pages(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])
    own = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert not own - set(menu), "add these pages to the nav of mkdocs.yml"
    assert sorted(menu) == sorted(own | set(generated))


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_lists_begin_after_an_empty_line(page):
    """GitHub shows them as lists either way, the site only so."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    assert not re.findall(r"^(?!\s|[-*|] |\d+\. ).+\n(?:[-*]|\d+\.) .*", text, re.M)


def test_every_page_is_found_from_the_first_one_or_the_readme():
    linked = {
        match
        for page in (DOCS / "index.md", ROOT / "README.md")
        for match in re.findall(r"(\w+)\.md[)#]", page.read_text())
    }
    assert not {path.stem for path in DOCS.glob("*.md")} - linked - {"index"}, "link these pages from docs/index.md"


def test_the_reference_has_every_command_and_name(generated):
    commands, python = generated["reference/commands.md"], generated["reference/python.md"]
    assert {f"## {name}" for name in registry.verbs.names()} <= set(commands.splitlines())
    assert {f"## ht.{name}" for name in hardtack.__all__ if name != "__version__"} <= set(python.splitlines())
    assert "| `--on here|torchrun|ray[:ADDRESS]|slurm` | where to compute" in commands
    assert "    threat: " in python[python.index("## ht.attack\n") :]
    measured = python[python.index("### Evaluation\n") : python.index("### Finding\n")]
    assert "| `robust` | `" in measured and "| `clean_accuracy` | `float` |" in measured and "### Attacked\n" in python


def test_installation_names_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"^\| `(\w+)` \|", (DOCS / "installation.md").read_text(), re.M)
    assert sorted(named) == sorted(name for name, packages in extras.items() if packages)


def test_the_papers_page_has_every_study_and_the_papers_own_numbers():
    text = (DOCS / "papers.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+/\w+)` \|", text, re.M)) == list_studies()
    rows = re.findall(r"^\| [^|]+ \| (.+) \| `([\w/]+): ([^`]+)` \|$", text, re.M)
    assert len(rows) > 15
    for numbers, study, cells in rows:
        said = load_study(study).paper_says
        values = [said[row][column] for column, row in re.findall(r"(\w+)\((\w+)\)", cells)]
        assert [float(number) for number in numbers.split(" | ")] == values, (study, cells)


def test_links_out_of_the_docs_lead_to_copies(tmp_path):
    hooks = part("hooks")
    page = type("Page", (), {"file": type("File", (), {"src_uri": "start.md"})})
    text = "[a](../examples/your_loop.py) [b](../studies) [c](train.md#speed) [d](../README.md)\n"
    text += "```\n[e](../studies)\n```\n"
    out = hooks.on_page_markdown(text, page)
    assert out.startswith("[a](repository/examples/your_loop.py.md) b [c](train.md#speed) [d](index.md)")
    assert "[e](../studies)" in out, "code is left as it is"
    assert ("repository/NOTICE") in [uri for _, uri in hooks._linked("start.md", "[x](../NOTICE)")]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebooks_run(file, tmp_path):
    """Every cell, in a fresh kernel and an empty folder; stored outputs are there and hold no path of a machine."""
    client = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'hardtack[docs]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'hardtack[docs]'")
    import nbformat

    text = file.read_text()
    assert "/home/" not in text and "/work/" not in text and file.stat().st_size < 300_000
    notebook = nbformat.read(file, as_version=4)
    stored = [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    client.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"] == stored
    assert json.loads(text)["nbformat"] == 4


def test_the_site_opens_without_network():
    """Fonts, scripts and styles are its own: the pages name no other host."""
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    assert settings["theme"]["font"] is False and settings["use_directory_urls"] is False
    assert any("iframe-worker" in name for name in settings["extra"]["polyfills"]), "the offline search would fetch it"
    for name in [*settings["extra"]["polyfills"], *settings["extra_css"]]:
        assert (DOCS / name).is_file() and "http" not in (DOCS / name).read_text()
