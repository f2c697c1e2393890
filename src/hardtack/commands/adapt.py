"""`hardtack adapt`: a differentiable copy of a model's answers, and an attack through it."""

from __future__ import annotations

from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@verbs.register("adapt", settings="hardtack.surrogates.settings:AdaptConfig")
def adapt(words: Words = None) -> None:
    """Distil a surrogate and attack through it: [bold]hardtack adapt runs/x threat=linf:8/255[/bold].

    For models that hide their gradients: a small network learns the model's answers in rounds, each on the images that
    an attack on the network found. Then the model is attacked with the gradients of that network, and the result is
    stored like any evaluation. The surrogate is a run folder of its own (output=DIR, default: RUN-surrogate), which
    other attacks can use: attack.transfer=DIR. If it is interrupted, the same command resumes it.
    """
    from hardtack.base.config import parse_words
    from hardtack.surrogates import job

    path, settings = split_target(words)
    say(job.adapt(path, **parse_words(settings)))
