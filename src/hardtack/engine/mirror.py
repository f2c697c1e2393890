"""Folders of a job on a machine with another disk: sent there, and what changed in them sent back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from hardtack.base.errors import UserError
from hardtack.base.files import atomic

Files = Mapping[str, bytes | None]  # by path below the root; None: the file is gone


def read_folders(root: Path, places: Sequence[Path]) -> dict[str, bytes]:
    """Every file at or below these places, by its path below `root`."""
    files: dict[str, bytes] = {}
    for place in places:
        for path in [place] if place.is_file() else sorted(_files(place)):
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    return files


def write_files(root: Path, files: Files) -> None:
    """Write files below `root`, each whole; a path that leads out of it is refused."""
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise UserError(f"a worker sent the path {name!r}, which leads out of {root}")
        place = root.joinpath(*path.parts)
        if content is None:
            place.unlink(missing_ok=True)
        else:
            with atomic(place) as file:
                file.write(content)


class Mirror:
    """The files below a folder; `changes` gives those that are new, changed or gone since the last call."""

    def __init__(self, root: Path) -> None:
        self.root, self._lock = root, threading.Lock()
        self._seen = self._state()

    def changes(self) -> dict[str, bytes | None]:
        with self._lock:
            now = self._state()
            changed: dict[str, bytes | None] = {name: None for name in self._seen if name not in now}
            for name, state in now.items():
                if self._seen.get(name) != state:
                    try:
                        changed[name] = (self.root / name).read_bytes()
                    except FileNotFoundError:  # replaced or removed since: the next call sees that
                        continue
            self._seen = now
        return changed

    def _state(self) -> dict[str, tuple[int, int, int]]:
        state = {}
        for path in _files(self.root):
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue
            state[path.relative_to(self.root).as_posix()] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        return state


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder without links, locks, and files that are being written."""
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            if not name.endswith((".lock", ".part")) and not path.is_symlink():
                yield path
