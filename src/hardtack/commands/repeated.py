"""A command that is repeated: its text is printed again, without torch, where nothing that it depended on has changed.

    command = Repeated.begin(on, dry_run=dry_run)
    if (text := command.recall()) is not None: …            # before anything is imported
    command.watch(sources)                                  # before the files are read
    command.keep(text, folder=…, ids=…)                     # after the results were written

Nothing is believed that the ordinary way would not believe: the results are read from the run folder again and compared
with their evidence. What is left out is loading the model and the images to learn that they are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hardtack.base import user_files
from hardtack.base.file_state import FileState
from hardtack.base.receipts import Receipt, command_key, read_receipt, states_of, write_receipt
from hardtack.commands.executor_words import TASK
from hardtack.commands.words import typed


class Repeated:
    """This command, as it was typed. Without a key it is not remembered."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.files: dict[str, FileState] | None = None

    @classmethod
    def begin(cls, on: str | None, *, dry_run: bool) -> Repeated:
        """A command for other machines is not remembered, nor one that ran the user's code, which may read anything."""
        elsewhere = on is not None or dry_run or TASK in os.environ or int(os.environ.get("WORLD_SIZE", 1)) > 1
        return cls(None if elsewhere or user_files.of_this_command() else command_key(typed))

    def recall(self) -> Sequence[str] | None:
        """What the command printed when it was run before; None where that is not certain to be the same now."""
        receipt = read_receipt(self.key) if self.key is not None else None
        if receipt is None or not all(_fingerprint(kept["folder"], kept["id"]) == kept for kept in receipt.results):
            return None
        return receipt.text

    def watch(self, files: Iterable[Path] | None) -> None:
        """Note the state of the files that will be read; None: they are not all known."""
        if self.key is not None and files is not None:
            self.files = states_of(files)

    def keep(self, text: Sequence[str], *, folder: str | Path = "", ids: Iterable[str] = ()) -> None:
        """Remember the text, if the files are still as they were and the results agree with their evidence.

        `ids`: of the evaluations in `folder` whose results the text shows.
        """
        if self.key is None or self.files is None or user_files.of_this_command():
            return
        results = [_fingerprint(folder, id) for id in ids]
        kept = [result for result in results if result is not None]
        if states_of(self.files) == self.files and kept == results:
            write_receipt(self.key, Receipt(files=self.files, results=kept, text=text))


def _fingerprint(folder: str | Path, id: str) -> dict[str, Any] | None:
    from hardtack.results.fingerprint import fingerprint  # it imports numpy and Arrow

    return fingerprint(folder, id)
