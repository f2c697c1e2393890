"""Around the verbs: plugins, and what a user's mistake or Ctrl-C comes to: one line and an exit code."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from hardtack.base.errors import UserError, did_you_mean

INTERRUPTED = 130


def run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run a verb of `app`; returns its exit code."""
    _wait_asleep()
    arguments = list(arguments)
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]  # accepted anywhere
    try:
        arguments = _import_plugins(arguments)
    except UserError as error:
        if debug:
            raise
        return _fail(str(error))
    if not debug:
        warnings.showwarning = _one_line
    try:
        _check_verb(app, arguments)
        code = int(app(args=arguments, prog_name="hardtack", standalone_mode=False) or 0)
        if code == INTERRUPTED:  # typer turns Ctrl-C into this
            print("hardtack: interrupted; repeat the command to go on", file=sys.stderr)
        return code
    except UserError as error:
        if debug:
            raise
        return _fail(str(error))
    except OSError as error:  # a folder that cannot be made, a full disk: nothing of ours to mend
        if debug:
            raise
        return _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except Exception as error:
        if debug:
            raise
        exit_code = getattr(error, "exit_code", None)  # typer's own: a wrong option, a missing argument
        message = error.format_message() if hasattr(error, "format_message") else ""
        if exit_code is not None and message.strip():  # it is empty where the help was shown instead
            return _fail(message)
        if exit_code is not None:
            return int(exit_code)
        whose = _users_line(error) or "this is a fault of hardtack"
        return _fail(f"{type(error).__name__}: {error} ({whose}; --debug shows where)", code=1)


def _wait_asleep() -> None:
    """Threads that wait for each other sleep after a tenth of a millisecond instead of ten.

    As fast where the cores are free; where others keep them busy, spinning threads take the cores from the very thread
    that they wait for (benchmarks/waiting.py: 6 steps a second instead of 112, beside as many busy processes as
    cores). torch's OpenMP reads this when it is loaded, which is later.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")


def _import_plugins(arguments: list[str]) -> list[str]:
    """Run the user's own files named by `--import FILE.py`, so that what they register can be named."""
    while "--import" in arguments:
        at = arguments.index("--import")
        file = Path(arguments[at + 1]) if at + 1 < len(arguments) else Path()
        if not file.is_file():
            raise UserError(f"--import takes a Python file, found '{file}'")
        from hardtack.models.user_code import run_file

        run_file(file)
        arguments = arguments[:at] + arguments[at + 2 :]
    return arguments


def _check_verb(app: typer.Typer, arguments: list[str]) -> None:
    verbs = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs:
        hint = did_you_mean(arguments[0], verbs) or f"; known: {', '.join(verbs)}"
        raise UserError(f"there is no verb '{arguments[0]}'{hint}")


def _fail(message: str, code: int = 2) -> int:
    print("hardtack: " + " ".join(message.split()), file=sys.stderr)
    return code


def _users_line(error: BaseException) -> str | None:
    """Where in the user's own code an error was raised, if it was: behind the last line of ours, libraries aside."""
    ours = str(Path(__file__).parent) + os.sep
    libraries = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(ours):
            return None
        if not frame.filename.startswith(("<", *libraries)):
            return f"raised in {frame.filename}, line {frame.lineno}"
    return None


def _one_line(message: Any, category: Any, *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"hardtack: note: {' '.join(str(message).split())}", file=sys.stderr)
