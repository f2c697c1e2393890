"""`hardtack corrupt`: a corrupted copy of a data set."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from hardtack.base.registry import verbs
from hardtack.commands.executor_words import DryRun, On, take_executor
from hardtack.commands.words import Words, say


@verbs.register("corrupt", settings="hardtack.data.corrupted_copy:CorruptedCopyConfig")
def corrupt(
    source: Annotated[str, typer.Argument(metavar="IN", help="a data set: cifar10, folder:PATH, parquet:PATH, …")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="the folder to write to")],
    words: Words = None,
    on: On = None,
    dry_run: DryRun = False,
) -> None:
    """Write a corrupted copy of a data set: [bold]hardtack corrupt cifar10 corrupted types=fog[/bold].

    A contact sheet shows all corruption types and severities. Settings: types, severities, constants, layout (npy,
    folder, parquet), jpeg, frost, seed, n, split, data.root.
    If it is interrupted, the same command resumes it.
    """
    from hardtack.base.config import parse_words
    from hardtack.data.corrupted_copy import corrupt_data

    executor, values = take_executor(on, parse_words(words or []), dry_run=dry_run)
    with executor or contextlib.nullcontext():
        sheet = corrupt_data(source, output, values, executor=executor)
    say(f"corrupted copy: {output}\ncontact sheet: {sheet}")
