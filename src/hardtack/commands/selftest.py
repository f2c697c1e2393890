"""`hardtack selftest`: test whether the attacks find adversarial examples that certainly exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import typer

from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@dataclass(frozen=True, kw_only=True)
class SelftestWords:
    """Where `selftest` differs from `evaluate`.

    suite  whose attacks are tested (an attack that is named alone is tested alone)
    tier   of autoattack: how much is searched, exact, verified, fast or max
    n      the number of images that an adversarial example is planted near
    inner  the number of random points that the planted example must be harder to find than
    """

    suite: str = "autoattack"
    tier: Literal["exact", "verified", "fast", "max"] = "fast"
    n: int = 16
    inner: int = 200


@verbs.register(
    "selftest", settings=("hardtack.evaluation.job:EvaluationJob", "hardtack.commands.selftest:SelftestWords")
)
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
