"""Named queries: questions that are asked often, one file of SQL each, in `named/` or of the user's own.

    -- Which runs are most robust?
    -- threat=null    only this threat
    -- least=0.5      a parameter with its default
    SELECT … WHERE $threat IS NULL OR threat = $threat

The first comment is the question, further ones are its parameters with default and sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.layers import parse_words
from hardtack.base.limits import read_bounded

FOLDER = Path(__file__).parent / "named"
_PARAMETER = re.compile(r"(\w+)=(\S+)\s+(\S.*)")
_MOST_BYTES = 2**20


@dataclass(frozen=True)
class NamedQuery:
    """A question, its SQL, and its parameters: name → default and sentence."""

    name: str
    question: str
    parameters: Mapping[str, tuple[Any, str]]
    sql: str


def named_queries() -> list[str]:
    """The names of all named queries of hardtack."""
    return sorted(path.stem for path in FOLDER.glob("*.sql"))


def read_named_query(name: str) -> NamedQuery:
    """The query of this name, or in this file of the user's (`NAME.sql`)."""
    path = _file(name) if name.endswith(".sql") else FOLDER / f"{name}.sql"
    if not path.is_file():
        if name.endswith(".sql"):
            raise UserError(f"there is no file {path}")
        if Path(name).expanduser().exists():
            raise UserError(f"'{name}' is a file or folder, and the query comes first: hardtack query ranking {name}")
        known = named_queries()
        near = did_you_mean(name, known) or f"; named queries: {', '.join(known)}"
        raise UserError(f"'{name}' is neither SQL (SELECT …) nor the name of a query{near}")
    sql = read_bounded(path, _MOST_BYTES)
    comments = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        comments.append(line.removeprefix("--").strip())
    parameters = {match[1]: match for line in comments if (match := _PARAMETER.fullmatch(line))}
    question = next((line for line in comments if not _PARAMETER.fullmatch(line)), "")
    defaults = {key: parse_words([f"value={match[2]}"])["value"] for key, match in parameters.items()}
    return NamedQuery(path.stem, question, {key: (defaults[key], parameters[key][3]) for key in parameters}, sql)


def _file(name: str) -> Path:
    return Path(name).expanduser()


def is_sql(text: str) -> bool:
    """Whether a text is SQL: it has more than one word, and is not the path of a file of SQL."""
    return len(text.split()) > 1 and not (text.endswith(".sql") and "\n" not in text and _file(text).is_file())
