"""`hardtack selftest`: test whether the attacks find adversarial examples that certainly exist."""

from __future__ import annotations

import typer

from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@verbs.register("selftest")
def selftest(words: Words = None) -> None:
    """Test the attacks themselves: [bold]hardtack selftest runs/x threat=linf:8/255[/bold].

    Gives a copy of the model a new last layer, so that a certain point near each of a few images is an adversarial
    example, and counts how often the attacks of the suite find one. Exit code 1 if they miss too many.
    """
    from hardtack.evaluation import selftest as attacks

    path, settings = split_target(words)
    result = attacks.selftest(path, settings)
    say(result)
    raise typer.Exit(0 if result.passed else 1)
