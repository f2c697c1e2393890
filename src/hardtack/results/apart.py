"""What tells settings apart, in the words that set them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.config import flat


def told_apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each of them what others have otherwise: `disturb=corrupt`. What is None was left open, and is not said."""
    known = [flat(one) for one in settings]
    keys = dict.fromkeys(key for one in known for key in one)
    apart = [key for key in keys if len({json.dumps(one.get(key), sort_keys=True) for one in known}) > 1]
    return [" ".join(f"{key}={_said(one[key])}" for key in apart if one.get(key) is not None) for one in known]


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
