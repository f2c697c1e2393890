"""The state of a file or a folder, from what the file system says about it: no content is read.

Two equal states mean equal contents, unless somebody set the clock back or wrote to the disk itself: a change of a file
changes its time of change (ctime), which no program can set. `settled` guards against the one gap: two changes so
shortly after each other that the file system gives both the same time.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

FileState = list[str | int]
ABSENT: FileState = ["absent"]
MOST_FILES = 200_000  # in a folder: looking at more would take longer than what it saves
_TICK_NS, _COARSE_NS = 10**8, 2 * 10**9  # between two times of a file system; where it keeps whole seconds


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """The state of what lies at a path; None where it cannot be known. The last item is when it was changed, in ns."""
    try:
        facts = os.stat(path)
        if stat.S_ISDIR(facts.st_mode):
            return _folder_state(os.fspath(path))
        if not stat.S_ISREG(facts.st_mode):
            return None
        with open(path, "rb") as file:  # a network file system asks its server again when a file is opened
            return ["file", *_facts(os.fstat(file.fileno()))]
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except (OSError, ValueError):
        return None


def settled(state: FileState, *, before_ns: int) -> bool:
    """Whether the last change lies so long before a time that a change after it has another time."""
    if state == ABSENT:
        return True
    changed = int(state[-1])
    return changed < before_ns - (_TICK_NS if changed % 10**9 else _COARSE_NS)


def _facts(facts: os.stat_result) -> tuple[int, int, int, int]:
    """Size, number, time of the content and time of the last change; the latter covers renaming and new permissions."""
    return facts.st_size, facts.st_ino, facts.st_mtime_ns, max(facts.st_ctime_ns, facts.st_mtime_ns)


def _folder_state(folder: str) -> FileState | None:
    """A digest of the names and states of all files below a folder, and when the last of them was changed."""
    digest, count, changed = hashlib.sha256(), 0, 0
    for count, (name, facts) in enumerate(_files_below(folder), start=1):
        if count > MOST_FILES:
            return None
        digest.update(os.fsencode(f"{name}\0{facts}\n"))
        changed = max(changed, facts[-1])
    return ["folder", digest.hexdigest(), count, changed]


def _files_below(top: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Path and facts of every file, links followed; a folder that is read by Python leaves `__pycache__` behind."""
    folders = [""]
    while folders:
        inner = folders.pop()
        with os.scandir(os.path.join(top, inner)) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = f"{inner}{entry.name}"
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(f"{name}/")
                    continue
                try:
                    yield name, _facts(entry.stat())
                except FileNotFoundError:  # a link that leads nowhere
                    yield name, (0, 0, 0, 0)
