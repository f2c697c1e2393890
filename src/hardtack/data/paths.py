"""Finding a data set's files, on the disk or at a URL, and saying what is near when they are not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.remote import Place, is_url
from hardtack.data.remote.address import SCHEMES
from hardtack.data.remote.path import remote_path

if TYPE_CHECKING:
    from hardtack.data.settings import DataConfig


def search_places(root: str | None) -> list[Path]:
    """The folders that relative names are looked up in: `root`, or ./data and then $HARDTACK_DATA."""
    if root is not None:
        if is_url(root):
            raise UserError(f"data.root={root}: what is read here must lie in a local folder; copy it to the disk")
        return [Path(root).expanduser()]
    places = [Path("data")]
    if os.environ.get("HARDTACK_DATA"):
        places.append(Path(os.environ["HARDTACK_DATA"]).expanduser())
    return places


def find_place(text: str, root: str | None, *, kind: str) -> Place:
    """As `find_path`, for readers that understand URLs too; nobody is asked whether a URL exists."""
    if is_url(text):
        return remote_path(text)
    if root is not None and is_url(root) and not Path(text).expanduser().is_absolute():
        return remote_path(root) / text.strip("/")
    return find_path(text, root, kind=kind)


def find_path(text: str, root: str | None, *, kind: str) -> Path:
    """The file or folder that `text` names: as it stands, or below one of the search places."""
    if text.partition(":/")[0] in SCHEMES:  # a Path of s3://a is s3:/a
        raise UserError(f"{kind}: {text} is a URL, and these files must lie in a local folder; copy them to the disk")
    path, tries = Path(text).expanduser(), _tries(text, root)
    for candidate in tries:
        if candidate.exists():
            return candidate
    looked = "" if path.is_absolute() else f"; looked in {', '.join(str(t.parent) for t in tries)}"
    raise UserError(f"{kind}: there is no file or folder '{text}'{nearest(tries)}{looked}")


def path_files(config: DataConfig, path: str) -> list[Path] | None:
    """For readers of one file or folder: what decides what they read; None for a URL, or a pattern of several files."""
    if is_url(path) or any(sign in path for sign in "*?["):
        return None
    return searched_paths(path, config.root)


def searched_paths(text: str, root: str | None) -> list[Path]:
    """Where `find_path` looks, up to the place where it finds something."""
    paths = []
    for candidate in _tries(text, root):
        paths.append(candidate)
        if candidate.exists():
            break
    return paths


def _tries(text: str, root: str | None) -> list[Path]:
    path = Path(text).expanduser()
    return [path] if path.is_absolute() else [place / path for place in search_places(root)] + [path]


def nearest(tries: list[Path]) -> str:
    """`" (did you mean '…'?)"` from what lies beside the missing path, or the first missing parent."""
    for candidate in tries:
        while not candidate.parent.is_dir() and candidate.parent != candidate:
            candidate = candidate.parent
        hint = did_you_mean(candidate.name, sorted(os.listdir(candidate.parent)))
        if hint:
            return hint
    return ""
