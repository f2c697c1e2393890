"""The settings in which several configurations differ, as text for labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.base.config import flat


def distinguish(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each configuration a short text such as `disturb=corrupt` that distinguishes it from the others.

    A setting is included only if it distinguishes configurations that agree in all settings included before it: for two
    attacks the name is enough. Settings with the value None are not printed.
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
    """The value as written on the command line: `[3,5]`, `[block,residual]`."""
    if isinstance(value, list):
        return f"[{','.join(map(_said, value))}]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
