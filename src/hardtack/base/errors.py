"""The one exception a user's mistake becomes, and the "did you mean" behind its message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user gave is wrong; the message is one line and says how to mend it.

    The command line prints it without a traceback and exits with 2.
    """


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`" (did you mean 'pgd'?)"` for the candidate nearest to `word`; empty when none is near."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.5)
    return f" (did you mean '{by_lower[near[0]]}'?)" if near else ""
