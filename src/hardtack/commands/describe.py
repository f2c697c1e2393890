"""`hardtack describe`: the parts of a model, in order, with shapes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.tree import Tree

from hardtack.base.registry import verbs
from hardtack.commands.repeated import Repeated
from hardtack.commands.words import Words, page


@verbs.register("describe")
def describe(
    model: Annotated[str, typer.Argument(help="a model's name, timm:NAME, a weights file or a run folder")],
    words: Words = None,
) -> None:
    """Print the parts of a model in the order they compute, with shapes.

    Settings: image_size, num_classes, and the model's own options.
    """
    command = Repeated.begin(None, dry_run=False)
    if (text := command.recall()) is not None:
        tree, options = _tree(json.loads(text[0])), json.loads(text[1])
    else:
        from hardtack.models.describe import describe_model, files_described

        command.watch(files_described(model))
        tree, options = describe_model(model, words or [])
        command.keep([json.dumps(_labels(tree)), json.dumps({key: str(value) for key, value in options.items()})])
    page().print(tree, highlight=False, no_wrap=True, overflow="ellipsis")
    if options:
        line = "  ".join(f"{key}={value}" for key, value in options.items())
        page().print(f"options: {escape(line)}", highlight=False, style="dim")


def _labels(tree: Tree) -> list[Any]:
    return [str(tree.label), [_labels(child) for child in tree.children]]


def _tree(labels: list[Any]) -> Tree:
    label, children = labels
    tree = Tree(label, guide_style="dim")
    tree.children += [_tree(child) for child in children]
    return tree
