"""`hardtack verify`: check that stored adversarial images still support the stored numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import typer

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@dataclass(frozen=True, kw_only=True)
class VerifyWords:
    """The settings of `verify`; model, data, runtime and all else that the evaluation fixed are taken from its record.

    evaluation  check only the evaluation of this id
    sample      measure so many images again, drawn at random, or `all` of them
    bits        8: check the adversarial images rounded to 8 bits, too
    run         the run or weights file that was measured, where the results lie in another folder or in a bundle
    """

    evaluation: str | None = None
    sample: int | Literal["all"] | None = None
    bits: Literal[8] | None = None
    run: str | None = None


@verbs.register("verify", settings="hardtack.commands.verify:VerifyWords")
def verify(words: Words = None) -> None:
    """Check stored results: [bold]hardtack verify runs/x[/bold], or a bundle: [bold]hardtack verify x.zip[/bold].

    Every field of every result is recomputed from the stored verdicts, settings, weights and data, or compared with the
    evidence record. Every adversarial image that counts as a success is checked with the model: inside the ball of the
    threat, inside [0,1], and misclassified in fp32 (bits=8: also when rounded to 8 bits). sample=K measures K images
    again, sample=all every image. What has no evidence is named as not verifiable. Exit code 1 if a check fails.
    """
    from hardtack.evaluation import verification

    path, settings = split_target(words)
    if path is None:
        raise UserError("name a run folder or a bundle: hardtack verify runs/x")
    checked = verification.verify(path, settings)
    for evaluation in checked:
        say(evaluation)
    say(verification.never_verifiable())
    raise typer.Exit(1 if any(evaluation.wrong for evaluation in checked) else 0)
