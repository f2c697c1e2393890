"""What the verbs share: how they read the words of a command line, and how they print."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hardtack.base.errors import UserError
from hardtack.base.printable import printable

# under torchrun only one process prints; a path stays on one line
console = Console(quiet=os.environ.get("RANK", "0") != "0", soft_wrap=True)

typed: list[str] = []  # the words of this command, as `cli.main` received them

Words = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="settings, such as train.epochs=5")]
Runs = Annotated[list[str], typer.Argument(metavar="RUNS... [KEY=VALUE]...", help="run folders, then settings")]
Files = Annotated[list[str], typer.Argument(metavar="FILES... [KEY=VALUE]...", help="files or folders, then settings")]


def say(text: object) -> None:
    """Print text as it is, without markup or colours; control characters from files are shown, not obeyed."""
    console.print(printable(text), highlight=False, markup=False)


def page() -> Console:
    """What tables are printed on: lines in a file are not wrapped at the width of a terminal."""
    return console if console.is_terminal else Console(width=160)


def split_target(words: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """The recipe or run folder that comes first, if any, and the settings."""
    words = list(words or [])
    first = words.pop(0) if words and "=" not in words[0] else None
    for word in words:
        if "=" not in word:
            raise UserError(f"'{word}' is not of the form key=value (a command takes one recipe or run folder, first)")
    return first, words


def split_names(words: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The names that come first, and the settings."""
    left = list(words or [])
    names = list(itertools.takewhile(lambda word: "=" not in word, left))
    settings = left[len(names) :]
    if stray := [word for word in settings if "=" not in word]:
        raise UserError(f"'{stray[0]}' is not of the form key=value (names come first, then settings)")
    return names, settings


def split_folders(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths that come first, and the settings."""
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    return [word for word in words if word not in settings], settings
