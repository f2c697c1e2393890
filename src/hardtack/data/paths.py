"""Finding a data set's files, and saying what is near when they are not there."""

from __future__ import annotations

import os
from pathlib import Path

from hardtack.base.errors import UserError, did_you_mean


def search_places(root: str | None) -> list[Path]:
    """The folders that relative names are looked up in: `root`, or ./data and then $HARDTACK_DATA."""
    if root is not None:
        return [Path(root).expanduser()]
    places = [Path("data")]
    if os.environ.get("HARDTACK_DATA"):
        places.append(Path(os.environ["HARDTACK_DATA"]).expanduser())
    return places


def find_path(text: str, root: str | None, *, kind: str) -> Path:
    """The file or folder that `text` names: as it stands, or below one of the search places."""
    path = Path(text).expanduser()
    tries = [path] if path.is_absolute() else [place / path for place in search_places(root)] + [path]
    for candidate in tries:
        if candidate.exists():
            return candidate
    looked = "" if path.is_absolute() else f"; looked in {', '.join(str(t.parent) for t in tries)}"
    raise UserError(f"{kind}: there is no file or folder '{text}'{nearest(tries)}{looked}")


def nearest(tries: list[Path]) -> str:
    """`" (did you mean '…'?)"` from what lies beside the missing path, or the first missing parent."""
    for candidate in tries:
        while not candidate.parent.is_dir() and candidate.parent != candidate:
            candidate = candidate.parent
        hint = did_you_mean(candidate.name, sorted(os.listdir(candidate.parent)))
        if hint:
            return hint
    return ""
