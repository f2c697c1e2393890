"""The lock of a job: of several calls of one job at the same time, one computes and the others wait for its result.

The file `.ID.lock` beside the hidden folder of the pieces says who holds the lock: process, host, and since when. While
the job runs, the file's time is renewed every few seconds. A lock whose holder is dead is taken over: at once where the
process id can be asked (same host and same container), else when its time has not changed for a minute. Times are
never compared between machines, only with what was read before, so that clocks need not agree.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hardtack.base.limits import read_json

RENEW_S = 5.0
STALE_S = 60.0
_POLL_S = 0.5
_SHARE_EVERY_S = 20.0
_HELD: dict[str, int] = {}  # the thread that holds a lock of this process, by the lock's token


class JobLock:
    """The lock at `path`. `title` names the job in the message to those who wait."""

    def __init__(self, path: Path, title: str = "job") -> None:
        self.path, self.title, self.token = path, title, uuid.uuid4().hex
        self.waited = False  # whether another call held it when it was wanted
        self._seen: tuple[str, int] | None = None  # the holder's token and the time of its file
        self._seen_at = 0.0
        self._announced: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, *, patience_s: float | None = None) -> bool:
        """Wait for the lock; False if it was not free within `patience_s`."""
        began = time.monotonic()
        _HELD[self.token] = threading.get_ident()  # before the file is there: other threads must not take it for dead
        mine: bool | None = False
        try:
            mine = self._wait(began, patience_s)
        finally:
            if not mine:
                _HELD.pop(self.token, None)
        if not mine:
            return mine is None
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew, daemon=True, name=f"lock {self.path.name}")
        self._thread.start()
        return True

    def _wait(self, began: float, patience_s: float | None) -> bool | None:
        """True when the lock is taken, None where this thread holds it already, False after the patience."""
        while not self._create():
            self.waited = True
            holder = self._holder()
            if holder is not None and _HELD.get(holder["token"]) == threading.get_ident():
                return None  # the same job inside itself: there is nobody to wait for
            if holder is not None and self._is_abandoned(holder):
                self._remove(holder["token"])
                continue
            self._announce(holder)
            if patience_s is not None and time.monotonic() - began >= patience_s:
                return False
            time.sleep(_POLL_S)
        return True

    def release(self) -> None:
        """Give the lock back, if it is held."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self._remove(self.token)
        _HELD.pop(self.token, None)

    def seen_held(self) -> bool:
        """Whether a process that is alive holds the lock. A holder on another machine is known to be gone when this is
        asked again and again and the lock has not been renewed for a minute."""
        holder = self._holder()
        return holder is not None and not self._is_abandoned(holder)

    # ------------------------------------------------------------ the file

    def _create(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": now, "processes": _process_space()}
        text = json.dumps({**facts, "token": self.token})
        if self.path.exists():
            return False
        whole = self.path.with_name(f"{self.path.name}.{self.token}")
        try:
            whole.write_text(text)
            return self._link(whole) or _create_new(self.path, text)
        except FileExistsError:
            return False
        finally:
            whole.unlink(missing_ok=True)

    def _link(self, whole: Path) -> bool:
        """Let the lock appear with what it says: after a kill an empty one would cost others a minute.

        False on a file system without links.
        """
        try:
            os.link(whole, self.path)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_S):
            with contextlib.suppress(OSError):  # the folder was removed by hand: the job itself will say so
                os.utime(self.path)

    def _holder(self) -> dict[str, Any] | None:
        """What the file says; None if it was removed. A file that is still empty has a holder without a name."""
        try:
            written = self.path.stat().st_mtime_ns
            return {**_read_facts(self.path), "written": written}
        except OSError:
            return None

    def _is_abandoned(self, holder: dict[str, Any]) -> bool:
        """Whether the holder's process is gone, or has not renewed its lock for a minute."""
        same = holder.get("processes") == _process_space() and holder.get("host") == socket.gethostname()
        pid = holder.get("pid")
        if same and isinstance(pid, int) and not _is_alive(pid):
            return True
        if same and pid == os.getpid() and holder["token"] not in _HELD:  # an earlier process with the same id
            return True
        sign = (holder["token"], holder["written"])
        if sign != self._seen:
            self._seen, self._seen_at = sign, time.monotonic()
        return time.monotonic() - self._seen_at > STALE_S

    def _remove(self, token: str) -> None:
        """Remove the lock of this holder, and of no other that may have taken it meanwhile."""
        aside = self.path.with_name(f"{self.path.name}.{self.token}")
        try:
            os.rename(self.path, aside)  # of several that try, one succeeds
        except OSError:
            return
        with contextlib.suppress(OSError):
            if _read_facts(aside)["token"] != token:
                os.link(aside, self.path)  # a live one: put it back, unless there is a new one already
        aside.unlink(missing_ok=True)

    def _announce(self, holder: dict[str, Any] | None) -> None:
        if holder is None or holder["token"] == self._announced or not holder.get("pid"):
            return
        self._announced = holder["token"]
        who = f"process {holder['pid']} on {holder.get('host')}, since {holder.get('since')}"
        print(
            f"{self.title} is already being computed ({who}); this call waits for it and then uses its result. If that "
            "process ends early, this call goes on where it stopped",
            file=sys.stderr,
        )


class JobLocks:
    """Several locks as one, taken in the given order: calls that give them in the same order never wait in a circle."""

    def __init__(self, locks: Sequence[JobLock]) -> None:
        self.locks = list(locks)
        self._taken = 0

    @property
    def waited(self) -> bool:
        """Whether another call held one of them when it was wanted."""
        return any(lock.waited for lock in self.locks)

    def acquire(self, *, patience_s: float | None = None) -> bool:
        """Wait for all; False if one was not free within `patience_s`: those before it stay taken for the next call."""
        for lock in self.locks[self._taken :]:
            if not lock.acquire(patience_s=patience_s):
                return False
            self._taken += 1
        return True

    def release(self) -> None:
        """Give back those that are held."""
        for lock in self.locks[: self._taken]:
            lock.release()
        self._taken = 0


@contextlib.contextmanager
def hold(lock: JobLock | JobLocks | None, share: Callable[[bool], bool] = lambda value: value) -> Iterator[bool]:
    """Hold the lock of a job inside the block; yields whether another call held it before.

    `share` gives the main process's value to every process; only the main one has the lock. While it waits, the others
    hear from it every few seconds: an operation between processes that takes longer than the process group allows
    would end them.
    """
    try:
        while not share(lock is None or lock.acquire(patience_s=_SHARE_EVERY_S)):
            pass
        yield share(lock is not None and lock.waited)
    finally:
        if lock is not None:
            lock.release()


def is_held(path: Path) -> bool:
    """Whether a process that is alive holds the lock at `path`, as far as can be known without waiting."""
    return JobLock(path).seen_held()


def _create_new(path: Path, text: str) -> bool:
    """Write a file that must not be there yet; False if it is."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return True


def _read_facts(path: Path) -> dict[str, Any]:
    """Who wrote a lock file; the token is empty where the file is empty or damaged."""
    try:
        facts = read_json(path, limit=65536)
    except ValueError:  # a UserError is one
        facts = {}
    facts = facts if isinstance(facts, dict) else {}
    return {**facts, "token": str(facts.get("token", ""))}


def _process_space() -> str:
    """Identifies the set of processes whose ids can be asked from here: one boot of one machine, one container."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts) or "unknown"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    with contextlib.suppress(OSError, IndexError):  # a zombie has ended, though its parent has not asked yet
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
