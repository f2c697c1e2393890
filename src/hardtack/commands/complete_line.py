"""How a line could go on: verbs, names, settings and their values, for the completion of bash, zsh and fish.

The script of the shell (completion.py) starts hardtack with `_HARDTACK_COMPLETE`, and with the line up to the cursor in
`_HARDTACK_LINE`. The answer has a line for each candidate: the whole word, a tab, and what it is. It imports neither
torch nor typer, because somebody waits for it with a finger on the key.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hardtack.base import registry
from hardtack.base.errors import UserError
from hardtack.commands.complete_settings import FILES, settings_below, values_of

MOST = 400
OPTIONS = {
    "--help": "show the help",
    "--import": "a Python file that registers your additions",
    "--debug": "tracebacks",
}
# verbs whose words may be files and folders
TAKE_FILES = (
    "train", "evaluate", "analyze", "attack", "adapt", "verify", "bundle", "selftest", "plan", "report", "export",
    "import", "compare", "corrupt", "describe", "leaderboard", "query", "watch",
)  # fmt: skip


class Candidate(NamedTuple):
    """A word that the line could go on with. `open` words go on themselves: no space follows."""

    word: str
    about: str = ""

    @property
    def open(self) -> bool:
        return self.word.endswith(("=", ".", ":", "/", ","))


def answer(environment: Mapping[str, str]) -> int:
    """Print the candidates in the form that the shell's script reads."""
    shell, line = environment["_HARDTACK_COMPLETE"], environment.get("_HARDTACK_LINE", "")
    words = split_line(line)
    try:
        found = list(dict.fromkeys(candidates(words[1:-1], words[-1]))) if len(words) > 1 else []
    except (UserError, OSError, ValueError):  # half a word may be anything
        found = []
    print_candidates(found[:MOST], words[-1] if words else "", shell, environment.get("_HARDTACK_BREAKS", ""))
    return 0


def split_line(line: str) -> list[str]:
    """The words of a line; the last one is being typed, and may be empty."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return words if line and not line[-1].isspace() else [*words, ""]
    return []


def print_candidates(found: Sequence[Candidate], word: str, shell: str, breaks: str) -> None:
    """bash takes what follows the last break (`=`, `:`) of the word, and one answer about spaces for all candidates."""
    cut = max((word.rfind(mark) for mark in "=:" if mark in breaks), default=-1) + 1
    lines = []
    for item in found:
        if shell == "bash":
            lines.append(item.word[cut:].replace(" ", "\\ "))
        else:
            lines.append(f"{item.word}\t{' '.join(item.about.split())}")
    if shell == "bash" and any(item.open for item in found):
        lines.insert(0, ":nospace")
    sys.stdout.write("".join(f"{line}\n" for line in lines))


# ---------------------------------------------------------------- candidates


def candidates(before: Sequence[str], word: str) -> Iterator[Candidate]:
    """What the word being typed could become, after the words before it."""
    last = before[-1] if before else ""
    before = [item for at, item in enumerate(before) if item != "--debug" and before[at - 1 : at] != ["--import"]]
    before = [item for item in before if item != "--import"]
    if last in ("--import", "--output", "-o", "--figures", "--folder", "--reported"):
        yield from files(word)
    elif last == "--on":
        yield from starting(word, [(name, "") for name in ("here", "torchrun", "ray", "slurm")])
    elif not before:
        further = {**OPTIONS, "--version": "print the version", "--install-completion": "complete words with TAB"}
        yield from starting(word, [*_verbs(), *(further.items() if word.startswith("-") else ())])
    elif before[0] in registry.verbs:
        yield from _of_verb(before[0], before[1:], word)


def starting(word: str, known: Iterable[tuple[str, str]]) -> Iterator[Candidate]:
    """Those that begin with the word."""
    yield from (Candidate(name, about) for name, about in known if name.startswith(word))


def files(prefix: str, lead: str = "") -> Iterator[Candidate]:
    """Files and folders whose path begins with the prefix, behind `lead` such as `data.root=`."""
    head, slash, start = prefix.rpartition("/")
    folder = Path(f"{head}{slash}" or ".").expanduser()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            yield Candidate(f"{lead}{head}{slash}{path.name}{'/' if path.is_dir() else ''}")


def _verbs() -> list[tuple[str, str]]:
    return [(entry.name, _plain(entry.help)) for entry in registry.verbs.listing()]


def _of_verb(verb: str, before: Sequence[str], word: str) -> Iterator[Candidate]:
    if word.startswith("-"):
        yield from starting(word, _options(verb))
        return
    key, equals, value = word.partition("=")
    if equals:
        yield from _values(verb, key, value, before)
        return
    bare = [item for item in before if "=" not in item and not item.startswith("-")]
    yield from starting(word, _names(verb, bare, word))
    if verb not in ("list", "describe", "completion"):
        yield from (Candidate(*item) for item in settings_below(verb, word, before))
    if verb in TAKE_FILES:
        yield from files(word)


def _options(verb: str) -> list[tuple[str, str]]:
    """typer is imported only here: who types a dash waits a little longer."""
    from hardtack.commands.settings_table import Section, section_rows

    rows = section_rows(Section("verb", verb))
    return [(row.name, row.sentence) for row in rows if row.name.startswith("--")] + [*OPTIONS.items()]


def _values(verb: str, key: str, value: str, before: Sequence[str]) -> Iterator[Candidate]:
    """`KEY=VALUE`; of a list, its last item."""
    known = values_of(verb, key, before)
    if known == FILES:
        yield from files(value, f"{key}=")
        return
    done, comma, start = value.rpartition(",")
    bracket = "[" if start.startswith("[") else ""
    lead = f"{key}={done}{comma}{bracket}"
    yield from (Candidate(f"{lead}{name}", about) for name, about in known if name.startswith(start[len(bracket) :]))
    if key in ("data", "data.name", "model", "model.name", "attack.loss"):
        kind, colon, path = value.partition(":")
        yield from files(path if colon else value, f"{key}={kind}:" if colon else f"{key}=")


def _names(verb: str, bare: Sequence[str], word: str) -> list[tuple[str, str]]:
    """What a verb takes beside settings and files."""
    from hardtack.commands import things

    if verb in ("train", "plan") and not bare:
        return [(thing.name, thing.help) for thing in things.kinds()["recipe"].list()]
    if verb == "study" and not bare:
        return [(thing.name, thing.help) for thing in things.kinds()["study"].list()]
    if verb == "analyze":
        return [(entry.name, entry.help) for entry in registry.analyses.listing() if entry.name not in bare]
    if verb == "list":
        return _of_list(bare)
    if verb == "describe" and not bare:
        noun, colon, _ = word.partition(":")
        every = things.kinds()
        if colon:
            return [(f"{noun}:{thing.name}", thing.help) for thing in every[noun].list()] if noun in every else []
        known = [(thing.name, thing.help) for kind in every.values() if not kind.rare for thing in kind.list()]
        return [*known, *((f"{kind}:", "") for kind in every)] if word else known
    if verb == "completion" and not bare:
        return [(shell, "") for shell in ("bash", "zsh", "fish")]
    return []


def _of_list(bare: Sequence[str]) -> list[tuple[str, str]]:
    from hardtack.commands.settings_table import all_sections
    from hardtack.commands.things import LISTED

    if not bare:
        return list(LISTED.items())
    if bare == ["settings"]:
        return [(section.name, section.title) for section in all_sections()]
    return []


def _plain(text: str) -> str:
    """A line of help without markup."""
    for mark in ("[bold]", "[/bold]"):
        text = text.replace(mark, "")
    return text.partition(": ")[0]


def environment_of(shell: str, line: str) -> dict[str, str]:
    """What the shell's script sets, for tests."""
    return {**os.environ, "_HARDTACK_COMPLETE": shell, "_HARDTACK_LINE": line, "_HARDTACK_BREAKS": " \t\n\"'><=;|&(:"}
