"""Which files of the user's this command has run: they travel with its jobs to other processes."""

from pathlib import Path

_run: dict[Path, None] = {}  # in order, each once


def note(file: Path) -> None:
    """A file was run, or would have been if it had not been run before."""
    _run[file] = None


def of_this_command() -> list[Path]:
    return list(_run)


def begin_command() -> None:
    """Another command begins in this process: files of earlier ones do not concern it."""
    _run.clear()
