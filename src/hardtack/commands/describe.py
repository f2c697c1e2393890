"""`hardtack describe`: the parts of a model, in order, with shapes."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from hardtack.base.registry import verbs
from hardtack.commands.words import Words, page


@verbs.register("describe")
def describe(
    model: Annotated[str, typer.Argument(help="a model's name, timm:NAME, a weights file or a run folder")],
    words: Words = None,
) -> None:
    """Print the parts of a model in the order they compute, with shapes.

    Settings: image_size, num_classes, and the model's own options.
    """
    from hardtack.models.describe import describe_model

    tree, options = describe_model(model, words or [])
    page().print(tree, highlight=False, no_wrap=True, overflow="ellipsis")
    if options:
        text = "  ".join(f"{key}={value}" for key, value in options.items())
        page().print(f"options: {escape(text)}", highlight=False, style="dim")
