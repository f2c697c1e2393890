"""The verbs. Each hands its words to `api` or to the job of its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from hardtack import __version__
from hardtack.base.errors import UserError
from hardtack.command import run

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)
# one voice under torchrun; words are words, and a path stays on one line
console = Console(quiet=os.environ.get("RANK", "0") != "0", soft_wrap=True)
_WHERE_THERE_IS_ROOM = ("family", "pixels", "source", "papers")
Words = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="settings, such as train.epochs=5")]

Runs = Annotated[list[str], typer.Argument(metavar="RUNS... [KEY=VALUE]...", help="run folders, then settings")]
Files = Annotated[list[str], typer.Argument(metavar="FILES... [KEY=VALUE]...", help="files or folders, then settings")]


def _say_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _hardtack(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
    plugin: Annotated[Path | None, typer.Option("--import", help="a file of yours that registers things")] = None,
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_say_version, help="say which")] = False,
) -> None:
    """Train, attack, measure and explain robust image classifiers.

    Settings are words: [bold]hardtack evaluate runs/x suite=pgd threat=linf:8/255[/bold].
    `docs/` says what each does.
    """


@app.command()
def train(words: Words = None) -> None:
    """Train a recipe: [bold]hardtack train recipes/digits/trades.yaml train.epochs=5[/bold].

    Repeated after a kill, it goes on where it stopped and ends with the same weights. Under torchrun it
    trains on all processes together.
    """
    from hardtack import api
    from hardtack.recipes import find_recipe
    from hardtack.training import read_recipe

    if not words:
        raise UserError("name a recipe or settings: hardtack train digits/trades (hardtack list recipes shows them)")
    path, settings = _target(words)
    recipe = read_recipe(find_recipe(path) if path else None, settings)
    folder = api.train(recipe)
    console.print(f"trained: {folder}", highlight=False, markup=False)


@app.command()
def evaluate(words: Words = None) -> None:
    """Measure a run or a model: [bold]hardtack evaluate runs/x suite=pgd,sweep threat=linf:8/255[/bold].

    Or [bold]hardtack evaluate model=mine.py:build data=folder:images suite=clean[/bold].
    Suites: clean, pgd, sweep, autoattack (tier=exact|verified|fast|max), attacks, curve, corruptions, perturbations,
    patches. A paper's whole row: protocol=NAME ([bold]hardtack list protocols[/bold]).
    """
    from hardtack import api
    from hardtack.base.config import parse_words

    path, settings = _target(words)
    values = parse_words(settings)
    if "protocol" in values:
        from hardtack.protocols import measure_protocol

        console.print(str(measure_protocol(path, **values)), highlight=False, markup=False)
        return
    for measured in api.evaluate_run(path, **values):
        console.print(str(measured), highlight=False, markup=False)


@app.command()
def analyze(
    words: Annotated[list[str] | None, typer.Argument(metavar="[RUN] ANALYSIS... [KEY=VALUE]...")] = None,
) -> None:
    """Say why a model is robust or not: [bold]hardtack analyze runs/x jacobian attention n=100[/bold].

    Or [bold]hardtack analyze model=timm:vit_small_patch16_224 data=folder:images jacobian jacobian.top=3[/bold].
    Which there are: [bold]hardtack list analyses[/bold]; their settings: [bold]hardtack list settings jacobian[/bold].
    Arrays and numbers go to the run folder, and [bold]hardtack report[/bold] draws them. Repeated after a kill, it goes
    on where it stopped.
    """
    from hardtack.analyzing import analyze_words

    for finding in analyze_words(words or []):
        console.print(str(finding), highlight=False, markup=False)


@app.command()
def attack(words: Words = None) -> None:
    """Make adversarial images: [bold]hardtack attack runs/x attack=pgd threat=linf:8/255 output=adv[/bold].

    Writes adversarial.npz (images, labels, predictions) and adversarial.png (a picture of them) to `output`.
    """
    from hardtack.craft import craft

    path, settings = _target(words)
    made = craft(path, settings)
    text = f"{made.summary}\nimages: {made.arrays}\npicture: {made.picture}"
    console.print(text, highlight=False, markup=False)


@app.command()
def verify(words: Words = None) -> None:
    """Check stored verdicts: [bold]hardtack verify runs/x bits=8[/bold].

    Every adversarial image that an evaluation counts is taken out again: in the ball, in the box, misclassified in
    fp32 (and after rounding to 8 bits). Exit code 1 when anything does not hold.
    """
    from hardtack.verify import verify as check

    path, settings = _target(words)
    if path is None:
        raise UserError("name a run folder: hardtack verify runs/x")
    found = check(path, settings)
    for one in found:
        console.print(str(one), highlight=False, markup=False)
    raise typer.Exit(1 if any(one.wrong for one in found) else 0)


@app.command()
def selftest(words: Words = None) -> None:
    """Test the test: [bold]hardtack selftest runs/x threat=linf:8/255[/bold].

    Plants an adversarial example beside each of a few images, by giving the model's own features a new last layer,
    and counts how often the attacks of the suite find one. Exit code 1 when they miss too many to be believed.
    """
    from hardtack.selftest import selftest as check

    path, settings = _target(words)
    found = check(path, settings)
    console.print(str(found), highlight=False, markup=False)
    raise typer.Exit(0 if found.passed else 1)


@app.command()
def plan(words: Words = None) -> None:
    """What an evaluation will cost: [bold]hardtack plan runs/x suite=autoattack tier=fast[/bold],

    or a training run: [bold]hardtack plan digits/trades train.epochs=20[/bold].
    Passes, time and memory, after a few seconds of calibration, and before anything is paid for.
    """
    from hardtack.plan import plan as estimate

    path, settings = _target(words)
    console.print(str(estimate(path, settings)), highlight=False, markup=False)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders, or folders of run folders")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where the page goes")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="also write figures for papers here")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Write one self-contained page and a model card per run: [bold]hardtack report runs/ --open[/bold]."""
    from hardtack.report import write_figures, write_report

    page = write_report(runs, output)
    console.print(f"report: {page}", highlight=False, markup=False)
    if figures is not None:
        written = write_figures(runs, figures)
        nothing = "nothing to draw: no run here has been trained or evaluated"
        made = f"{len(written)} in {figures}" if written else nothing
        console.print(f"figures: {made}", highlight=False, markup=False)
    if open_page:
        typer.launch(page.resolve().as_uri())


@app.command()
def export(words: Runs) -> None:
    """Results for a spreadsheet, a paper or RobustBench: [bold]hardtack export runs/ format=latex output=t.tex[/bold].

    format=csv (one line per result), latex (booktabs tables of what may be compared) or robustbench (model info JSON;
    authors, link, venue, name, reported, architecture, footnote, additional_data fill what no measurement knows).
    """
    from hardtack.exporting import export as write

    runs, settings = _folders(words)
    console.print(write(runs, settings), highlight=False, markup=False)


@app.command("import")
def import_results(words: Files) -> None:
    """Read what others report: [bold]hardtack import model_info/cifar10/Linf output=runs/reported[/bold].

    Takes RobustBench's model info, files or folders, and writes a run folder for each model; such numbers stand in
    tables of their own. norm=linf, l2 or corruptions says which leaderboard a file is from, where its folder does not.
    """
    from hardtack.base.config import parse_words
    from hardtack.importing import import_reported

    files, settings = _folders(words)
    folders = import_reported(files, parse_words(settings))
    where = f" to {folders[-1]}" if len(folders) > 1 else ""
    text = f"reported: {len(folders)} models, {folders[0]}{where}\nhardtack report shows them beside runs of yours"
    console.print(text, highlight=False, markup=False)


@app.command()
def compare(words: Annotated[list[str] | None, typer.Argument(metavar="RUN RUN... [metric=NAME]")] = None) -> None:
    """Which numbers truly differ: [bold]hardtack compare runs/a runs/b[/bold].

    What was measured the same way on the same images is compared image by image: the difference with its interval, and
    how likely one as large would be by luck.
    """
    from hardtack.comparing import compare_words

    for one in compare_words(words or []):
        console.print(str(one), highlight=False, markup=False)


@app.command()
def corrupt(
    source: Annotated[str, typer.Argument(metavar="IN", help="a data set: cifar10, folder:PATH, parquet:PATH, …")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="the folder to write to")],
    words: Words = None,
) -> None:
    """Write a corrupted copy of a data set, and a contact sheet of all types and severities.

    Settings: types, severities, constants, layout (npy, folder, parquet), jpeg, frost, seed, n, split, data.root.
    """
    from hardtack.base.config import parse_words
    from hardtack.corrupting import corrupt_data

    sheet = corrupt_data(source, output, parse_words(words or []))
    console.print(f"corrupted copy: {output}\ncontact sheet: {sheet}", highlight=False, markup=False)


@app.command("list")
def list_names(
    kind: Annotated[str, typer.Argument(help="models, attacks, datasets, objectives, suites, protocols, recipes …")],
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="keep rows that hold them all")] = None,
) -> None:
    """What can be named: models, attacks, datasets, objectives, suites, analyses, protocols, recipes, settings.

    Models can be chosen by column too: family=swin, paper=arg, attention=window, source=ours, pixels=32. image_size=64
    counts the GFLOPs and tokens of those that take that size.
    """
    from hardtack.listing import rows_of

    header, rows = rows_of(kind, words or [])
    page = _page()
    needed = sum(2 + max(len(row[at]) for row in [header, *rows]) for at in range(len(header))) - 2
    kept = [at for at, name in enumerate(header) if needed <= page.width or name not in _WHERE_THERE_IS_ROOM]
    names = [header[at] for at in kept]
    table = Table(Column(names[0], no_wrap=True), *names[1:], box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(row[at]) for at in kept))
    page.print(table, highlight=False)
    if len(kept) < len(header):
        page.print(f"[dim]a window {needed} wide shows {', '.join(_WHERE_THERE_IS_ROOM)} too[/dim]")


def _page() -> Console:
    """What tables are printed on: a file has no edge to wrap at."""
    return console if console.is_terminal else Console(width=160)


@app.command()
def describe(
    model: Annotated[str, typer.Argument(help="a model's name, timm:NAME, a weights file or a run folder")],
    words: Words = None,
) -> None:
    """Draw a model's parts in the order they compute, with shapes. Settings: image_size, num_classes, and its knobs."""
    from hardtack.models.describe import describe_model

    page, (tree, knobs) = _page(), describe_model(model, words or [])
    page.print(tree, highlight=False, no_wrap=True, overflow="ellipsis")
    if knobs:
        text = "  ".join(f"{key}={value}" for key, value in knobs.items())
        page.print(f"knobs: {escape(text)}", highlight=False, style="dim")


@app.command()
def doctor() -> None:
    """Check this installation: versions, devices, optional packages; exit code 1 when something is broken."""
    from hardtack.doctor import examine

    healthy = True
    for finding in examine():
        colour = {"ok": "green", "note": "yellow", "broken": "red"}[finding.state]
        console.print(
            f"[{colour}]{finding.state:<7}[/{colour}] {escape(f'{finding.what:<14} {finding.detail}')}",
            highlight=False,
        )
        healthy &= finding.state != "broken"
    raise typer.Exit(0 if healthy else 1)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--folder", help="where the runs and the report go")] = Path("runs/demo"),
    open_page: Annotated[bool, typer.Option("--open", help="open the report in a browser")] = False,
) -> None:
    """Train, attack, compare and look into three small vision transformers on the bundled digits: about two minutes."""
    from hardtack.demo import run_demo

    page = run_demo(folder)
    console.print(f"report: {page}", highlight=False, markup=False)
    if open_page:
        typer.launch(page.resolve().as_uri())


def _target(words: list[str] | None) -> tuple[str | None, list[str]]:
    """The path a command starts with, if any, and its settings."""
    words = list(words or [])
    first = words.pop(0) if words and "=" not in words[0] else None
    for word in words:
        if "=" not in word:
            raise UserError(f"'{word}' is not of the form key=value (one recipe or run folder comes first)")
    return first, words


def _folders(words: list[str]) -> tuple[list[str], list[str]]:
    """The paths a command starts with, and its settings."""
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    return [word for word in words if word not in settings], settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return run(app, sys.argv[1:] if arguments is None else arguments)
