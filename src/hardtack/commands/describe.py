"""`hardtack describe`: the parts of a model, in order, with shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.tree import Tree

from hardtack.base import user_files
from hardtack.base.registry import verbs
from hardtack.commands.repeated import Repeated
from hardtack.commands.words import Words, page

DESCRIPTIONS = Path(__file__).resolve().parents[1] / "models" / "descriptions.json"


@verbs.register("describe")
def describe(
    model: Annotated[str, typer.Argument(help="a model's name, timm:NAME, a weights file or a run folder")],
    words: Words = None,
) -> None:
    """Print the parts of a model in the order they compute, with shapes.

    Settings: image_size, num_classes, and the model's own options.
    """
    command = Repeated.begin(None, dry_run=False)
    if (row := _known(model) if not words else None) is not None:
        labels, options = row["tree"], row["options"]
    elif (text := command.recall()) is not None:
        labels, options = json.loads(text[0]), json.loads(text[1])
    else:
        from hardtack.models.describe import describe_model, files_described, labels_of

        command.watch(files_described(model))
        tree, given = describe_model(model, words or [])
        labels, options = labels_of(tree), {key: str(value) for key, value in given.items()}
        command.keep([json.dumps(labels), json.dumps(options)])
    page().print(_tree(labels), highlight=False, no_wrap=True, overflow="ellipsis")
    if options:
        line = "  ".join(f"{key}={value}" for key, value in options.items())
        page().print(f"options: {escape(line)}", highlight=False, style="dim")


def _known(model: str) -> dict[str, Any] | None:
    """The description of a model of this package, unless a file has its name or code of the user's may replace it."""
    if user_files.of_this_command() or Path(model).expanduser().exists():
        return None
    row: dict[str, Any] | None = json.loads(DESCRIPTIONS.read_text(encoding="utf-8")).get(model)
    return row


def _tree(labels: list[Any]) -> Tree:
    label, *children = labels
    tree = Tree(label, guide_style="dim")
    tree.children += [_tree(child) for child in children]
    return tree
