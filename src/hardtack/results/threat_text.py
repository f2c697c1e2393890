"""Threats as text, so that results and the report can read them without importing `hardtack.threats`."""

from __future__ import annotations

import re
from fractions import Fraction

from hardtack.base.errors import UserError

_LONG_EXPONENT = re.compile(r"[eE][+-]?\d{4}")  # 1e999999999 as a fraction would have a billion digits


def parse_threat(text: str) -> tuple[str, float]:
    """`"linf:8/255"` as ("linf", 0.0314)."""
    norm, colon, eps = text.partition(":")
    try:
        if not colon or _LONG_EXPONENT.search(eps):
            raise ValueError
        numerator, _, denominator = eps.partition("/")
        return norm, float(Fraction(numerator) / Fraction(denominator or "1"))
    except (ValueError, ZeroDivisionError):
        raise UserError(f"threat '{text}' is not of the form norm:eps, for example linf:8/255") from None
