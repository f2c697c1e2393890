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
    flattened = [flat(entry) for entry in settings]
    taken: list[str] = []
    for key in dict.fromkeys(key for entry in flattened for key in entry):
        if _kinds(flattened, [*taken, key]) > _kinds(flattened, taken):
            taken.append(key)
    return [
        " ".join(f"{key}={_said(entry[key])}" for key in taken if entry.get(key) is not None) for entry in flattened
    ]


def _kinds(flattened: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    return len({json.dumps([entry.get(key) for key in keys], sort_keys=True) for entry in flattened})


def _said(value: Any) -> str:
    """As it is written on the command line: `[3,5]`, `[block,residual]`."""
    if isinstance(value, list):
        return f"[{','.join(map(_said, value))}]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
