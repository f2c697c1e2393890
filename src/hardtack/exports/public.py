"""Names without the folders of this machine: exported files are given away."""

from __future__ import annotations

import re
from typing import Any

PATH = re.compile(r"(?:(?<=file://)|(?<![\w./]))~?/[^\s\"'/:,]+(?:/[^\s\"'/:,]+)+/?")
# a whole text that is one path, with spaces in it: data=npz:/home/John Smith/mine.npz
WHOLE = re.compile(r"((?:[\w.]+=)?(?:\w+:)?(?:file://)?)~?/(?:[^/\n]+/)+([^/\n]+)/?")


def names_paths(text: str) -> bool:
    """Whether there is an absolute path in a text."""
    return PATH.search(text) is not None


def without_paths(value: Any) -> Any:
    """Absolute paths in texts become their last part: `npz:/data/mine.npz` → `npz:mine.npz`."""
    if isinstance(value, str):
        whole = None if " /" in value or " ~/" in value else WHOLE.fullmatch(value)
        if whole is not None:
            return whole[1] + whole[2]
        return PATH.sub(lambda match: match[0].rstrip("/").rpartition("/")[2], value)
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    return [without_paths(item) for item in value] if isinstance(value, list | tuple) else value
