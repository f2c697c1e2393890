"""`hardtack verify`: check that stored adversarial images still support the stored numbers."""

from __future__ import annotations

import typer

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@verbs.register("verify")
def verify(words: Words = None) -> None:
    """Check stored verdicts: [bold]hardtack verify runs/x bits=8[/bold].

    Every adversarial image that an evaluation counts as a success is loaded again and checked: inside the ball of the
    threat, inside [0,1], and misclassified in fp32 (bits=8: also when rounded to 8 bits). Exit code 1 if a check fails.
    """
    from hardtack.evaluation import verification

    path, settings = split_target(words)
    if path is None:
        raise UserError("name a run folder: hardtack verify runs/x")
    checked = verification.verify(path, settings)
    for evaluation in checked:
        say(evaluation)
    raise typer.Exit(1 if any(evaluation.wrong for evaluation in checked) else 0)
