"""An analysis of the user's own with its chart is one file: it runs, and is drawn on the page and as a figure."""

import json
import re
from pathlib import Path

import pytest

from hardtack.base.registry import analyses, charts
from hardtack.commands.cli import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "your_analysis.py"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """`analyze`, then `report --figures`, with the user's file; what it registers is taken out again afterwards."""
    folder = tmp_path_factory.mktemp("analysis")
    file = folder / "my_analysis.py"
    file.write_text(EXAMPLE.read_text().replace("gradient_size", "my_gradients"))
    run = folder / "run"
    words = ["model=vit_digits", "data=digits", "n=16", f"output={run}"]
    assert main(["--import", str(file), "analyze", "my_gradients", *words]) == 0
    page, figures = folder / "page.html", folder / "figures"
    assert main(["--import", str(file), "report", str(run), "-o", str(page), "--figures", str(figures)]) == 0
    yield page.read_text(), {path.name for path in figures.iterdir()}
    forget()


def forget():
    """The next command starts without the user's file."""
    analyses._entries.pop("my_gradients")
    charts._entries.pop("my_gradients")


def test_the_chart_is_on_the_page_with_the_numbers_of_the_analysis(written):
    page, _ = written
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    (series,) = data["charts"]["gradient-size-0"]["views"][0]["series"]
    assert series["n"] == 16 and series["mean"] > 0
    assert '<section id="gradients">' in page and '<a href="#gradients">Gradients</a>' in page
    assert "kinds.histogram = " in page, "the script of its kind is on the page"


def test_the_figure_is_written_in_every_format(written):
    assert {f"gradient-size.{format}" for format in ("pdf", "svg", "png")} <= written[1]
