"""Text from anywhere, safe to print: a terminal obeys control characters, and names in files may hold any."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"


def printable(text: object) -> str:
    """The text with control characters, and those that reverse the direction of writing, shown as `\\x1b`."""
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(letter if _is_harmless(letter) else _shown(letter) for letter in plain)


def _is_harmless(letter: str) -> bool:
    """Categories: Cc control, Cf format (direction of writing, zero width), Cs half of a pair, Zl/Zp separators."""
    return letter in _KEPT or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _shown(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
