"""Files written whole and renamed into place: neither a reader nor a resumed run ever sees half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file to write; it takes its place at `path` only when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files only their owner can read; results are for sharing
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` (UTF-8) atomically."""
    with atomic(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
