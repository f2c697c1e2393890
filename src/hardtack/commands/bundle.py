"""`hardtack bundle`: one file with everything that another person needs to verify a run."""

from __future__ import annotations

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@verbs.register("bundle", settings="hardtack.results.bundle:BundleConfig")
def bundle(words: Words = None) -> None:
    """Pack a run into one file that others can verify: [bold]hardtack bundle runs/x output=x.zip[/bold].

    It has the results, verdicts, evidence records, adversarial images, settings, versions of the software and the
    weights (weights=false leaves them out), with the SHA-256 of each file. [bold]hardtack verify x.zip[/bold] checks
    it; without weights: [bold]hardtack verify x.zip run=WEIGHTS.safetensors[/bold], or model=NAME model.weights=FILE.
    """
    from hardtack.base.config import build, parse_words
    from hardtack.results.bundle import BundleConfig, write_bundle

    path, settings = split_target(words)
    if path is None:
        raise UserError("name a run folder: hardtack bundle runs/x")
    say(write_bundle(path, build(BundleConfig, parse_words(settings))))
