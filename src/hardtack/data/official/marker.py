"""A small file that says "not official": whoever writes files in an official layout leaves it beside them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from hardtack.base import files
from hardtack.base.errors import UserError
from hardtack.base.limits import parse_json
from hardtack.data.official.kinds import GROUPS, Source, title

NAME = "hardtack.json"
_MOST_BYTES = 2**22


def mark_regenerated(folder: str | Path, **facts: Any) -> Path:
    """Write the marker into `folder`; `facts` say how the images were made (seed, version, `classes`: their names)."""
    return files.write_text(Path(folder) / NAME, json.dumps({**facts, "source": "regenerated"}, indent=1))


def read_marker(folder: Path) -> dict[str, Any] | None:
    """What the marker of a folder or `.tar` says, or nothing; a group's folder (`weather/`) has its marker above it."""
    if folder.is_file():
        with tarfile.open(folder, "r:") as archive:
            member = next((member for member in archive if Path(member.name).name == NAME), None)
            file = archive.extractfile(member) if member else None
            return _parse(file.read(_MOST_BYTES + 1), f"{folder}:{NAME}") if file else None
    for place in (folder, folder.parent) if folder.name in GROUPS else (folder,):
        if (place / NAME).is_file():
            with (place / NAME).open("rb") as file:
                return _parse(file.read(_MOST_BYTES + 1), str(place / NAME))
    return None


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        if len(data) > _MOST_BYTES:
            raise UserError(f"{where} is larger than {_MOST_BYTES} bytes")
        return dict(parse_json(data.decode("utf-8", errors="replace"), where))
    except (ValueError, TypeError):
        raise UserError(f"{where} is damaged; it should say how these images were made") from None


def source_of(kind: str, marker: dict[str, Any] | None) -> Source:
    if marker is not None:
        return "regenerated"
    return "own" if kind == "corrupted" else "official"


def statement(kind: str, marker: dict[str, Any] | None) -> str:
    """What the images are, in words that a result carries."""
    source = source_of(kind, marker)
    if source == "official":
        return f"official {title(kind)} files"
    if source == "own":
        return "the user's own corrupted images"
    details = ", ".join(f"{key} {value}" for key, value in (marker or {}).items() if key in ("hardtack", "seed"))
    return f"{title(kind)} regenerated{f' ({details})' if details else ''}, not the official files"
