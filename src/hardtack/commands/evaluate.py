"""`hardtack evaluate`: measure a run folder or a model."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from hardtack.base.quick_imports import quick_imports
from hardtack.base.registry import verbs
from hardtack.commands.executor_words import DryRun, On, take_executor
from hardtack.commands.repeated import Repeated
from hardtack.commands.words import Words, say, split_target


@dataclass(frozen=True, kw_only=True)
class ProtocolWord:
    """protocol  all numbers of a paper's table row in one command, with its settings (hardtack list protocols)"""

    protocol: str | None = None


@verbs.register(
    "evaluate", settings=("hardtack.evaluation.job:EvaluationJob", "hardtack.commands.evaluate:ProtocolWord")
)
def evaluate(words: Words = None, on: On = None, dry_run: DryRun = False) -> None:
    """Measure a run or a model: [bold]hardtack evaluate runs/x suite=pgd,sweep threat=linf:8/255[/bold].

    Or [bold]hardtack evaluate model=mine.py:build data=folder:images suite=clean[/bold].
    Suites ([bold]hardtack list suites[/bold]): clean, pgd, sweep, autoattack (tier=exact|verified|fast|max), attacks,
    curve, corruptions, perturbations, patches. All numbers of a paper's table row: protocol=NAME
    ([bold]hardtack list protocols[/bold]). If it is interrupted, the same command resumes it. More processes or
    machines: [bold]workers=4[/bold], [bold]--on ray[/bold], [bold]--on slurm[/bold].
    """
    command = Repeated.begin(on, dry_run=dry_run)
    if (text := command.recall()) is not None:
        for part in text:
            say(part)
        return
    with quick_imports():
        from hardtack.base.config import parse_words
        from hardtack.evaluation import job
        from hardtack.evaluation.sources import evaluation_sources

    path, settings = split_target(words)
    executor, values = take_executor(on, parse_words(settings), dry_run=dry_run)
    with executor or contextlib.nullcontext():
        if "protocol" in values:
            from hardtack.studies.protocol_run import measure_protocol

            say(measure_protocol(path, executor=executor, **values))
            return
        sources = evaluation_sources(path, values)
        command.watch(sources.files if sources is not None else None)
        evaluations = job.evaluate_run(path, executor=executor, **values)
        for measured in evaluations:
            say(measured)
        if sources is not None:
            ids = [measured.id for measured in evaluations]
            command.keep([*map(str, evaluations)], folder=sources.folder, ids=ids)
