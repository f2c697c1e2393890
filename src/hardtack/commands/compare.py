"""`hardtack compare`: which numbers of two runs differ by more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs
from hardtack.commands.words import say


@dataclass(frozen=True, kw_only=True)
class CompareWords:
    """metric  compare only this metric (hardtack list metrics)"""

    metric: str | None = None


@verbs.register("compare", settings="hardtack.commands.compare:CompareWords")
def compare_words(
    words: Annotated[list[str] | None, typer.Argument(metavar="RUN RUN... [metric=NAME]")] = None,
) -> None:
    """Test which numbers of two runs differ: [bold]hardtack compare runs/a runs/b[/bold].

    Numbers that were measured in the same way on the same images are compared image by image. Prints each difference
    with its confidence interval and its p-value.
    """
    from hardtack.results.compare import compare

    words = words or []
    runs = [word for word in words if "=" not in word]
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    metric = settings.pop("metric", None)
    if settings:
        raise UserError(f"compare takes run folders and metric=NAME, found '{next(iter(settings))}'")
    if len(runs) < 2:
        raise UserError("name two run folders or more: hardtack compare runs/a runs/b")
    for other in runs[1:]:
        say(compare(runs[0], other, metric=metric))
