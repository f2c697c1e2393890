"""`hardtack report`: a page over many runs, a card for each, and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hardtack.base.registry import verbs
from hardtack.commands.words import say


@verbs.register("report")
def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders, or folders of run folders")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="the HTML file to write")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="also write figures for papers here")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Write one self-contained page and a model card per run: [bold]hardtack report runs/ --open[/bold]."""
    from hardtack.report import write_figures, write_report

    page = write_report(runs, output)
    say(f"report: {page}")
    if figures is not None:
        written = write_figures(runs, figures)
        nothing = "nothing to draw: no run here has been trained or evaluated"
        say(f"figures: {f'{len(written)} in {figures}' if written else nothing}")
    if open_page:
        typer.launch(page.resolve().as_uri())
