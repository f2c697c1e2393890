"""Text from anywhere, safe to print: a terminal obeys control characters, and names in files may hold any."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any

LONGEST_MESSAGE = 4000  # characters
_KEPT = "\n\t"


def printable(text: object) -> str:
    """The text with control characters, and those that reverse the direction of writing, shown as `\\x1b`."""
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(letter if _is_harmless(letter) else _shown(letter) for letter in plain)


def one_line(message: object) -> str:
    """A message as one line of a limited length: it may quote a file, and a file may hold anything."""
    text = printable(" ".join(str(message).split()))
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def print_note(message: Any, category: Any, *_: Any, **__: Any) -> None:
    """For `warnings.showwarning`: a warning to users as one line, without the line of code that raised it."""
    if issubclass(category, UserWarning):
        print(f"hardtack: note: {one_line(message)}", file=sys.stderr)


def _is_harmless(letter: str) -> bool:
    """Categories: Cc control, Cf format (direction of writing, zero width), Cs half of a pair, Zl/Zp separators."""
    return letter in _KEPT or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _shown(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
