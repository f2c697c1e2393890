"""The command line: gathers the verbs from their registry, and turns mistakes into one line and an exit code.

A verb is a function with typer's annotations, registered in `verbs`, in a file of this folder or of the user's
(`--import FILE.py`). Only the module of the verb that was typed is imported; `--help` imports all of them.
"""

from __future__ import annotations

import itertools
import os
import re
import site
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hardtack import __version__
from hardtack.base import user_files
from hardtack.base.errors import UnknownSetting, UserError, did_you_mean, known_elsewhere
from hardtack.base.files import local_path, unwritable_folder
from hardtack.base.interrupted import INTERRUPTED, say_interrupted
from hardtack.base.printable import one_line, print_note
from hardtack.base.registry import datasets, verbs
from hardtack.commands.verb_help import VerbCommand
from hardtack.commands.words import typed

# the order in which the help shows them; others follow by name
ORDER = (
    "train", "evaluate", "analyze", "study", "attack", "adapt", "verify", "bundle", "selftest", "gauntlet", "plan",
    "report", "leaderboard", "watch", "query", "export", "import", "compare", "corrupt", "list", "describe", "doctor",
    "completion", "demo",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    _let_threads_sleep()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "--install-completion" in arguments:
        arguments = ["completion", "--install", *(word for word in arguments if word != "--install-completion")]
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]  # accepted anywhere
    typed[:] = arguments
    user_files.begin_command()
    if not debug:
        warnings.showwarning = print_note
    try:
        arguments = import_plugins(arguments)
        _check_verb(arguments)
        _check_local(arguments)
        app = build_app(arguments[:1] if arguments and arguments[0] in verbs else verb_names())
        code = int(app(args=arguments, prog_name="hardtack", standalone_mode=False) or 0)
    except Exception as error:
        if debug:
            raise
        return _report_error(error)
    return say_interrupted() if code == INTERRUPTED else code  # typer returns this after Ctrl-C


def build_app(names: Iterable[str]) -> typer.Typer:
    """The command line with these verbs."""
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    app.callback()(_options)
    for name in names:
        app.command(name, cls=VerbCommand)(verbs.get(name).make)
    return app


def verb_names() -> list[str]:
    """All verbs: the built-in ones in the order of a project, then those of the user's files."""
    return sorted(verbs.names(), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
    plugin: Annotated[Path | None, typer.Option("--import", help="a Python file that registers your additions")] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="print the version and exit")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install-completion", help="complete words with TAB (hardtack completion --install)")
    ] = False,
) -> None:
    """Train, attack, measure and explain robust image classifiers.

    Settings have the form key=value: [bold]hardtack evaluate runs/x suite=pgd threat=linf:8/255[/bold].
    The folder `docs` has a page about each job; [bold]hardtack doctor[/bold] says where it is.
    """


# ---------------------------------------------------------------- before the verb runs


def _let_threads_sleep() -> None:
    """Threads that wait for each other sleep after 0.1 ms instead of 10 ms.

    This is as fast where the cores are free. Where other processes use them, threads that spin take the cores from the
    very thread that they wait for (benchmarks/waiting.py: 6 steps a second instead of 112, beside as many busy
    processes as cores). torch's OpenMP reads this variable when it is loaded, which is later.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")


def import_plugins(arguments: list[str]) -> list[str]:
    """Run the user's files named by `--import FILE.py`, so that what they register can be named."""
    while "--import" in arguments:
        at = arguments.index("--import")
        file = Path(*arguments[at + 1 : at + 2])
        if not file.is_file():
            found = f"'{file}'" if file.name else "nothing"
            raise UserError(f"--import takes a Python file, found {found}")
        from hardtack.models.user_code import run_file

        run_file(file)
        arguments = arguments[:at] + arguments[at + 2 :]
    return arguments


def _check_verb(arguments: list[str]) -> None:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs:
        hint = did_you_mean(arguments[0], verb_names()) or f"; known: {', '.join(verb_names())}"
        raise UserError(f"there is no verb '{arguments[0]}'{hint}")


def _check_local(arguments: list[str]) -> None:
    """Run folders and outputs are local: refuse a URL that is a word of its own, or the value of `output`."""
    for before, word in itertools.pairwise(arguments):
        is_data = word.partition(":")[0] in datasets  # folder:/photos
        if before != "--on" and not is_data and not word.startswith("-"):  # --on ray://HOST:PORT is an address
            local_path(word.removeprefix("output="))


# ---------------------------------------------------------------- mistakes and faults


def _report_error(error: Exception) -> int:
    """Print one line about an error, and return the exit code: 2 for a mistake of the user's, 1 for a fault."""
    if isinstance(error, UserError):
        return _fail(f"{error}{_how_to_list(error)}" if isinstance(error, UnknownSetting) else str(error))
    if isinstance(error, OSError):  # a folder that cannot be created, a full disk
        return _fail(_about_file(error))
    exit_code = getattr(error, "exit_code", None)  # an error of typer's: a wrong option, a missing argument
    message = error.format_message() if hasattr(error, "format_message") else ""
    if exit_code is not None and message.strip():  # it is empty where the help was shown instead
        missing = message.startswith("Missing argument '")
        return _fail(_missing_argument(message) if missing else _unknown_option(message))
    if exit_code is not None:
        return int(exit_code)
    origin = _line_of_user(error) or "this is a fault of hardtack"
    return _fail(f"{type(error).__name__}: {error} ({origin}; --debug shows the traceback)", code=1)


def _about_file(error: OSError) -> str:
    """What could not be done with which file; a folder that cannot be written, with how to name another one."""
    folder = unwritable_folder(error)
    if folder is None:
        return f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    from hardtack.commands.settings_table import Section, section_rows

    names = [row.name for row in section_rows(Section("verb", typed[0]))] if typed and typed[0] in verbs else []
    how = next((f": {key}" for name, key in (("output", "output=…"), ("--output", "--output …")) if name in names), "")
    return f"the folder {folder} cannot be written ({error.strerror}); name another one{how}"


def _how_to_list(error: UnknownSetting) -> str:
    """The command that lists the settings there are: of the registered thing, of the section, or of the verb."""
    from hardtack.commands.settings_table import find_sections

    section, dot, _ = error.path.partition(".")
    verb = typed[0] if typed and typed[0] in verbs else ""
    owner = error.owner.partition(":")[2]
    if owner:
        of = owner if len(find_sections(owner)) == 1 else error.owner
    else:
        of = section if dot and find_sections(section) else verb
    return f"; hardtack list settings {of} shows all" if of else ""


def _unknown_option(message: str) -> str:
    """`No such option: --epochs`, with the setting that was meant."""
    option = message.removeprefix("No such option: ").split()[0].rstrip(".").lstrip("-")
    verb = typed[0] if typed and typed[0] in verbs else ""
    if not message.startswith("No such option: --") or not verb:
        return message
    from hardtack.commands.settings_table import words_of

    key = option.partition("=")[0].replace("-", "_")
    words = words_of(verb)
    near = key if key in words else known_elsewhere(key, words) or next((w for w in words if w.endswith(f".{key}")), "")
    given = near if "=" in near else f"{near}=…"
    hint = f", did you mean {given}?" if near else f"; hardtack list settings {verb} shows them"
    return f"there is no option --{option}; settings are written key=value{hint}"


def _missing_argument(message: str) -> str:
    """`Missing argument 'NAME'.`, with the example that the verb's help begins with."""
    verb, name = typed[0], message.split("'")[1].split()[0].rstrip(".").upper()
    example = re.search(r"\[bold\](hardtack .*?)\[/bold\]", verbs.get(verb).make.__doc__ or "")
    return f"{verb} needs {name}: {example[1] if example else f'hardtack {verb} --help'}"


def _fail(message: str, code: int = 2) -> int:
    print("hardtack: " + one_line(message), file=sys.stderr)
    return code


def _line_of_user(error: BaseException) -> str | None:
    """The line of the user's own code that raised the error; None if hardtack or a library that it called raised it."""
    ours = str(Path(__file__).parents[1]) + os.sep
    libraries = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(ours):
            return None
        if not frame.filename.startswith(("<", *libraries)):
            return f"raised in {frame.filename}, line {frame.lineno}"
    return None
