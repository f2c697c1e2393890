"""A dry run: what would be submitted, as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hardtack.engine.slurm.command import sbatch_words
from hardtack.engine.slurm.script import array_script
from hardtack.engine.slurm.settings import SlurmSettings
from hardtack.engine.slurm.task import ARRAY_SIZE, Task, check_folder


def describe_array(
    tasks: Sequence[Task], settings: SlurmSettings, *, folder: str | Path, title: str, launch: Sequence[str] = ()
) -> str:
    """The scripts and the commands that would submit them. Nothing is written, and Slurm is not asked."""
    folder = check_folder(folder)
    texts = []
    for part in range((len(tasks) + ARRAY_SIZE - 1) // ARRAY_SIZE):
        script = folder / f"array-{part}.sh"
        text = array_script(tasks, settings, folder=folder, title=title, part=part, launch=launch)
        texts.append(f"# {script}\n{text}\n{shlex.join(sbatch_words(script))}\n")
    return "\n".join(texts)
