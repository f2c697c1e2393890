"""What tells settings apart, in the words that set them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.base.config import flat


def distinguish(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each of them as few as tell it from the others: `disturb=corrupt`. None was left open, and is not said.

    A setting is taken where it parts some that those before it leave alike: of two attacks the name, not all they have.
    """
    known = [flat(one) for one in settings]
    taken: list[str] = []
    for key in dict.fromkeys(key for one in known for key in one):
        if _kinds(known, [*taken, key]) > _kinds(known, taken):
            taken.append(key)
    return [" ".join(f"{key}={_said(one[key])}" for key in taken if one.get(key) is not None) for one in known]


def _kinds(known: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    return len({json.dumps([one.get(key) for key in keys], sort_keys=True) for one in known})


def _said(value: Any) -> str:
    """As it is written on the command line: `[3,5]`, `[block,residual]`."""
    if isinstance(value, list):
        return f"[{','.join(map(_said, value))}]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
