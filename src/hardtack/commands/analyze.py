"""`hardtack analyze`: explain why a model is robust or not."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from hardtack.base.quick_imports import quick_imports
from hardtack.base.registry import verbs
from hardtack.commands.executor_words import DryRun, On, take_executor
from hardtack.commands.words import say


@verbs.register("analyze", settings="hardtack.evaluation.target:TargetConfig")
def analyze(
    words: Annotated[list[str] | None, typer.Argument(metavar="[RUN] ANALYSIS... [KEY=VALUE]...")] = None,
    on: On = None,
    dry_run: DryRun = False,
) -> None:
    """Explain why a model is robust or not: [bold]hardtack analyze runs/x jacobian attention n=100[/bold].

    Or [bold]hardtack analyze model=timm:vit_small_patch16_224 data=folder:images jacobian jacobian.top=3[/bold].
    All analyses: [bold]hardtack list analyses[/bold]; their settings: [bold]hardtack list settings jacobian[/bold].
    Arrays and numbers are written to the run folder, and [bold]hardtack report[/bold] draws them. If it is interrupted,
    the same command resumes it.
    """
    with quick_imports():
        from hardtack.analysis.job import analyze_words
        from hardtack.base.config import flat, parse_words

    settings = parse_words([word for word in words or [] if "=" in word])
    executor, left = take_executor(on, settings, dry_run=dry_run)
    taken = set(flat(settings)) - set(flat(left))
    kept = [word for word in words or [] if word.partition("=")[0] not in taken]
    with executor or contextlib.nullcontext():
        for finding in analyze_words(kept, executor=executor):
            say(finding)
