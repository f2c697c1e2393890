"""Files written whole and renamed into place: neither a reader nor a resumed run ever sees half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hardtack.base.errors import UserError

# pathlib writes s3://bucket as s3:/bucket; one letter before the colon is a drive of Windows
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


def local_path(path: str | Path) -> Path:
    """The path of a run folder or an output; a URL is refused before a folder named `s3:` is created."""
    if _URL.match(str(path)):
        raise UserError(
            f"{path} is a URL, and run folders and outputs are on a local disk: they need locks, resumable pieces and "
            "files that are renamed into place. Use a local folder, and copy it before or after the command, for "
            "example with 'aws s3 sync FROM TO' or fsspec; data sets may be at URLs (data=folder:s3://…)"
        )
    return Path(path).expanduser()


def cache_folder() -> Path:
    """Where hardtack keeps what it can fetch or compute again."""
    own = os.environ.get("HARDTACK_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hardtack"


def state_folder() -> Path:
    """Where hardtack keeps what belongs to this user alone, and cannot be computed again."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(home) / "hardtack"


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
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if is_disk_full(error):
            raise no_space(path) from error
        raise


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error comes from a full disk or quota; torch reports it as a RuntimeError that hides the cause."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def no_space(path: str | Path) -> UserError:
    """The error for a file that does not fit on its disk."""
    path = Path(path)
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(path.parent).free / 2**20
        detail = f"{free:,.0f} MB are free in {path.parent}, or a quota is reached"
        return UserError(
            f"{path} cannot be written: no space is left on the disk ({detail}). What was written before is kept: free "
            "some space and repeat the command to continue"
        )
    return UserError(f"{path} cannot be written: no space is left on the disk")


def unwritable_folder(error: OSError) -> Path | None:
    """The folder in which a file could not be made, if this was the fault."""
    if error.errno not in _REFUSED or not error.filename or os.path.exists(error.filename):
        return None
    folder = next(folder for folder in Path(os.fsdecode(error.filename)).absolute().parents if folder.is_dir())
    return None if os.access(folder, os.W_OK) else folder


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` (UTF-8) atomically."""
    with atomic(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
