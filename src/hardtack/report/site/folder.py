"""The folder of a site: what was written there, from which state of which files, and how it is replaced.

`.site.json` keeps, for every page, the state of the files that it was made of and what the index says of it. A page is
written again only if that state changed. Every file is written whole and renamed into place; the index comes after the
pages that it names, and files that nothing names any more are removed last: whenever the process is killed, the site is
whole, as it was before or with some pages renewed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.file_state import settled
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.base.trust import check_links, file_inside

MANIFEST = ".site.json"
_FORMAT = 1
_SAVE_EVERY_S = 3.0
_MOST_BYTES = 2**28
_WEIGHTS = "checkpoints"
_SKIPPED = {"figures", "tensorboard"}  # folders of a run that no page shows
_PARTS = re.compile(r"\..+\.part")  # what a killed process left of a file


@dataclass
class SiteFolder:
    """A site on disk. `pages` are the records of earlier builds by key; those that this one used are in `wanted`."""

    root: Path
    maker: str
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)
    written: int = 0
    kept: int = 0
    _keys: set[str] = field(default_factory=set)
    _saved: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, root: Path, maker: str) -> SiteFolder:
        """The site in a folder: a new one where the folder is empty or missing; no other folder is written to."""
        if root.is_file():
            raise UserError(f"{root} is a file; name a folder for the site: --output site")
        present = [path for path in root.iterdir() if path.name != ".site.lock"] if root.is_dir() else []
        if not (root / MANIFEST).is_file():
            if present:
                raise UserError(
                    f"{root} has other files and is no site of hardtack leaderboard; name a new folder: --output site"
                )
            return cls(root, maker)
        check_links(root)
        try:
            values = read_json(root / MANIFEST, limit=_MOST_BYTES)
            files, pages = {str(name) for name in values["files"]}, dict(values["pages"])
            same = values["format"] == _FORMAT and values["maker"] == maker
        except (UserError, AttributeError, KeyError, TypeError, ValueError):
            return cls(root, maker)
        return cls(root, maker, pages=pages if same else {}, files=files)

    def record(self, key: str, state: str) -> dict[str, Any] | None:
        """What an earlier build noted about a page that need not be written again; None where it must be."""
        known = self.pages.get(key)
        if not isinstance(known, dict) or known.get("state") != state or not state:
            return None
        named = [known.get("page"), *known.get("more", ())]
        try:
            whole = all(file_inside(self.root, name).is_file() for name in named if name)
        except (UserError, TypeError):
            return None
        if not whole:
            return None
        self._keys.add(key)
        self.wanted |= {name for name in named if name}
        self.kept += 1
        return known

    def keep(self, key: str, record: dict[str, Any]) -> None:
        """Note a page that was written now, from time to time also on disk."""
        self.pages[key] = record
        self._keys.add(key)
        if time.monotonic() - self._saved > _SAVE_EVERY_S:
            self.save()

    def write(self, name: str, text: str) -> None:
        """Write a file of the site, unless it has this text already. Names of files may be no text: `replace`."""
        path, text = self.root / name, text.encode("utf-8", "replace").decode("utf-8")
        self.wanted.add(name)
        self.files.add(name)
        with contextlib.suppress(OSError):
            if path.read_bytes() == text.encode("utf-8"):
                return
        if path.is_symlink():  # put there by somebody else: a link is replaced, never written through
            path.unlink()
        write_text(path, text)
        self.written += 1

    def save(self) -> None:
        """Write what is known so far."""
        values = {"format": _FORMAT, "maker": self.maker, "files": sorted(self.files), "pages": self.pages}
        write_text(self.root / MANIFEST, json.dumps(values) + "\n")
        self._saved = time.monotonic()

    def finish(self) -> int:
        """Remove what no page of this build needs; returns how many files."""
        removed = 0
        for name in sorted(self.files - self.wanted):
            with contextlib.suppress(UserError, OSError):
                file_inside(self.root, name).unlink()
                removed += 1
        for folder in {Path(name).parent for name in self.files}:
            with contextlib.suppress(OSError):
                for path in (self.root / folder).iterdir():
                    if _PARTS.fullmatch(path.name):
                        path.unlink(missing_ok=True)
        self.files = set(self.wanted)
        self.pages = {key: record for key, record in self.pages.items() if key in self._keys}
        self.save()
        return removed


def folders_state(folders: Iterable[Path], *more: Any, weights: bool = False) -> str:
    """A digest of the names, sizes and times of all files of run folders that a page may show; links are not followed.

    `weights`: those of the checkpoints, too. Empty where a file changed so recently that another change could go
    unnoticed: such a page is written again.
    """
    digest, newest = hashlib.sha256(json.dumps(more, default=str).encode()), 0
    before = time.time_ns()
    for folder in folders:
        for name, facts in _files_below(folder, _SKIPPED if weights else _SKIPPED | {_WEIGHTS}):
            digest.update(os.fsencode(f"{name}\0{facts}\n"))
            newest = max(newest, facts[-1])
    return digest.hexdigest() if settled(["folder", newest], before_ns=before) else ""


def _files_below(top: Path, skipped: set[str]) -> Iterable[tuple[str, tuple[int, ...]]]:
    if top.is_file():
        yield top.name, _facts(top)
        return
    for here, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in skipped and not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                path = os.path.join(here, name)
                yield os.path.relpath(path, top), _facts(path)


def _facts(path: str | Path) -> tuple[int, ...]:
    try:
        facts = os.lstat(path)
    except OSError:
        return (0,)
    return facts.st_size, facts.st_ino, facts.st_mtime_ns, max(facts.st_ctime_ns, facts.st_mtime_ns)


def page_name(label: str, key: str = "") -> str:
    """A name for the page of a run or study that any file system can keep, different for different labels and keys."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.")[:60]
    return f"{plain or 'run'}-{hashlib.sha256((key or label).encode('utf-8', 'replace')).hexdigest()[:8]}.html"
