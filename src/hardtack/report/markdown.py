"""Text that stays text in Markdown: names come from files and may hold anything."""

from __future__ import annotations

import re

from hardtack.base.printable import printable


def inline(value: object) -> str:
    """Text in a line or in a cell of a table."""
    text = printable(" ".join(str(value).split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore inside a word is harmless, and model names are full of them.
    return re.sub(r"([\\`*\[\]|]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def code(value: object) -> str:
    """Text between backticks, where nothing is escaped and only a backtick or a line break can get out."""
    return printable(" ".join(str(value).split())).replace("`", "'")
