"""`hardtack describe`: what anything that has a name is, and the parts of a model, in order, with shapes."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from hardtack.base import user_files
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import models, verbs
from hardtack.commands.descriptions import Description, description_of
from hardtack.commands.model_options import descriptions
from hardtack.commands.repeated import Repeated
from hardtack.commands.settings_table import rows_named, settings_rows
from hardtack.commands.settings_text import print_rows
from hardtack.commands.things import all_names, facts_of_models, find_things, kinds
from hardtack.commands.words import Words, console, page, say


@verbs.register("describe")
def describe(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="anything with a name, KIND:NAME, a setting, timm:NAME, a weights file, a run folder",
        ),
    ],
    words: Words = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a list of objects for other programs")] = False,
) -> None:
    """Say what something is, with its paper, settings and an example: [bold]hardtack describe trades[/bold].

    Attacks, objectives, suites, analyses, models, data sets, recipes, studies, protocols, executors, flags, metrics,
    corruptions, losses, kinds of charts, verbs and settings ([bold]describe train.ema[/bold]). If several things share
    the name, all are shown; [bold]describe attack:pgd[/bold] shows one.
    Of a model, a weights file or a run folder: its parts in the order they compute, with shapes. Settings of a model:
    image_size, num_classes, and its own options.
    """
    things = [] if words or _is_file(name) else find_things(name)
    others = [thing for thing in things if thing.kind != "model"]
    rows = [] if things or words or _is_model(name) else rows_named(name)
    if as_json:
        described = [dataclasses.asdict(description_of(thing)) for thing in things]
        if not described and not rows:
            _refuse(name)
        say(json.dumps(described or [dataclasses.asdict(row) for row in rows], indent=1, ensure_ascii=False))
        return
    if rows:
        print_rows(rows, sections=True)
        return
    if not others:
        _model(name.removeprefix("model:") if things else name, words)
    for place, thing in enumerate(things):
        if thing.kind == "model" and others:
            _model(thing.name, words)
        if place or thing.kind == "model":
            console.print()
        _print(description_of(thing))


def _is_file(name: str) -> bool:
    """A weights file or run folder: a folder that only shares the name of something is not meant."""
    path = Path(name).expanduser()
    return path.is_file() or (path / "config.yaml").is_file() or (path / "checkpoints").is_dir()


def _refuse(name: str) -> None:
    noun, colon, own = name.partition(":")
    if colon and noun in kinds():
        names = [thing.name for thing in kinds()[noun].list()]
        raise UserError(f"there is no {noun} '{own}'{did_you_mean(own, names) or f'; known: {_first(names)}'}")
    known = [row.name for row in settings_rows()] if "." in name and "/" not in name else all_names()
    hint = did_you_mean(name, known) or "; hardtack list KIND and hardtack list settings show what there is"
    raise UserError(f"nothing here is called '{name}'{', and there is no such file or folder' * ('/' in name)}{hint}")


def _first(names: list[str]) -> str:
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "")


# ---------------------------------------------------------------- models


def _model(name: str, words: list[str] | None) -> None:
    """The parts of a model, by name or in a file."""
    if not words and not _is_model(name):
        _refuse(name)
    command = Repeated.begin(None, dry_run=False)
    if (row := _known(name) if not words else None) is not None:
        labels, options = row["tree"], row["options"]
    elif (text := command.recall()) is not None:
        labels, options = json.loads(text[0]), json.loads(text[1])
    else:
        from hardtack.models.describe import describe_model, files_described, labels_of

        command.watch(files_described(name))
        tree, given = describe_model(name, words or [])
        labels, options = labels_of(tree), {key: str(value) for key, value in given.items()}
        command.keep([json.dumps(labels), json.dumps(options)])
    page().print(_tree(labels), highlight=False, no_wrap=True, overflow="ellipsis")
    if options:
        line = "  ".join(f"{key}={value}" for key, value in options.items())
        page().print(f"options: {escape(line)}", highlight=False, style="dim")


def _is_model(name: str) -> bool:
    """Whether a word can be a model: a path, a name of timm's, code of the user's, or a registered name."""
    noun = name.partition(":")[0]
    if ":" in name and noun in kinds():
        return False
    known = (*facts_of_models(), *(entry.name for entry in models.registered()))
    mistyped = "/" in name and did_you_mean(name, [other for other in all_names() if "/" in other])
    return ":" in name or Path(name).expanduser().exists() or name in known or ("/" in name and not mistyped)


def _known(model: str) -> dict[str, Any] | None:
    """The description of a model of this package, unless a file has its name or code of the user's may replace it."""
    if user_files.of_this_command() or Path(model).expanduser().exists():
        return None
    row: dict[str, Any] | None = descriptions().get(model)
    return row


def _tree(labels: list[Any]) -> Tree:
    label, *children = labels
    tree = Tree(label, guide_style="dim")
    tree.children += [_tree(child) for child in children]
    return tree


# ---------------------------------------------------------------- everything else


def _print(about: Description) -> None:
    head = f"[bold]{escape(about.kind)} {escape(about.name)}[/bold]"
    console.print(f"{head}  {escape(about.help)}" if about.help else head, highlight=False)
    for text in (about.how, about.text.removeprefix(about.help).strip()):
        if text and text.rstrip(".") != about.help.rstrip("."):
            say("\n" + _flowing(text))
    lines = [("paper", paper) for paper in about.papers]
    lines += about.facts
    lines += [("example" if place == 0 else "", example) for place, example in enumerate(about.examples)]
    lines += [("docs", about.page)] if about.page else []
    lines += [("source", about.module)] if about.module else []
    if lines:
        console.print()
        _print_facts(lines)
    if about.settings and about.kind in ("verb", "dataset"):
        word = "data" if about.kind == "dataset" else about.name
        console.print(f"\n{len(about.settings)} settings: hardtack list settings {word}", highlight=False)
    elif about.settings:
        console.print()
        print_rows(about.settings)


def _print_facts(lines: list[tuple[str, str]]) -> None:
    """Labels with their texts; on a terminal long texts stay beside their labels, in a pipe each is one line."""
    if console.is_terminal:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for label, text in lines:
            grid.add_row(f"[dim]{escape(label)}[/dim]", escape(text))
        console.print(grid, highlight=False, soft_wrap=False)
        return
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        say(f"{label.ljust(width)}  {text}")


def _flowing(text: str) -> str:
    """Paragraphs filled to the width of the terminal; indented lines and lists stay as they are."""
    width = min(console.width, 100) if console.is_terminal else 100
    filled = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        plain = not any(line.startswith((" ", "-", "|", "→")) or "   " in line for line in lines)
        filled.append(textwrap.fill(" ".join(lines), width, break_long_words=False) if plain else paragraph)
    return "\n\n".join(filled)
