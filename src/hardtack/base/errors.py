"""The one exception a user's mistake becomes, and the "did you mean" behind its message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from hardtack.base.other_names import other_names


class UserError(ValueError):
    """Something the user gave is wrong; the message is one line and says how to mend it.

    The command line prints it without a traceback and exits with 2.
    """


class UnknownSetting(UserError):
    """A setting that does not exist, at `path`; `owner` is the registered thing that it was meant for, if any.

    The command line adds the command that lists the settings there are.
    """

    def __init__(self, message: str, *, path: str = "", owner: str = "") -> None:
        super().__init__(message)
        self.path, self.owner = path, owner


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`" (did you mean 'pgd'?)"` for the candidate nearest to `word`; empty when none is near.

    What other packages call it comes before what is spelt alike (other_names.py).
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = known_elsewhere(word, by_lower) or next(iter(close_matches(word, by_lower)), None)
    return f" (did you mean '{by_lower.get(near, near)}'?)" if near else ""


def known_elsewhere(word: str, candidates: Iterable[str]) -> str | None:
    """Our word for what users of other packages call so, if it or its section is among the candidates.

    A candidate that differs by a letter or two comes before a setting of another section.
    """
    known = set(candidates)
    text = str(word).lower().replace("-", "_")
    if text in known:
        return text
    ours = {name: name.partition("=")[0].partition(" ")[0] for name in other_names(text)}
    here = [name for name, first in ours.items() if first in known]
    inside = [name for name, first in ours.items() if "." in first and first.partition(".")[0] in known]
    return next(iter([*here, *close_matches(text, known, 0.85), *inside]), None)


def close_matches(word: str, candidates: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """The candidate that is spelt most like the word, in lower case."""
    return difflib.get_close_matches(str(word).lower(), list(candidates), n=1, cutoff=cutoff)
