"""What the results of spectra are called; charts ask, too, and need no torch for it."""

from __future__ import annotations


def column_of(kind: str, threat: object) -> str:
    """The name of a kind of piece among the results: spectra at attacked images are others than those at images."""
    return f"{kind} attacked" if threat else kind
