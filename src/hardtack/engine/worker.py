"""A worker process on this machine: `python -m hardtack.engine.worker FD`, started by the executor `here`.

It talks to its driver through the socket FD. The driver sends `("job", packed)` and then `("piece", span, notebook)`;
the worker answers with `("hello", versions)`, `("note", text, share)` at times, `("done", span, result)`,
`("refused", message)` for a mistake of the user's or `("fault", traceback)`. It ends when its driver does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

from hardtack.base.allocator import keep_freed_memory
from hardtack.base.errors import UserError
from hardtack.base.printable import print_note
from hardtack.base.progress import Meter
from hardtack.engine.job import Job
from hardtack.engine.packing import unpack, versions
from hardtack.engine.pieces import PieceResult, Span
from hardtack.engine.store import Notebook

NOTE_EVERY_S = 0.5


class NoteMeter(Meter):
    """A meter that tells somebody else what is being done, a few times a second at the most."""

    def __init__(self, tell: Any) -> None:
        super().__init__("", total=1, quiet=True)
        self._tell, self._last = tell, 0.0

    def note(self, text: str, share: float = 0.0) -> None:
        if time.monotonic() - self._last >= NOTE_EVERY_S:
            self._last = time.monotonic()
            self._tell(text, min(max(share, 0.0), 0.999))


class JobSession:
    """A job that was unpacked and has begun: it computes pieces until it is closed."""

    def __init__(self, packed: tuple[bytes, bytes]) -> None:
        keep_freed_memory()
        self.job: Job = unpack(packed)
        self._open = contextlib.ExitStack()
        self._open.enter_context(self.job.session())
        self.job.begin()

    def run(self, span: Span, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        inputs = next(iter(self.job.inputs([span])))
        return self.job.run(span, inputs, notebook=notebook, meter=meter)

    def close(self) -> None:
        self._open.close()


def serve(pipe: Connection) -> None:
    """Answer the driver until it hangs up."""
    pipe.send(("hello", versions()))
    meter = NoteMeter(lambda text, share: pipe.send(("note", text, share)))
    session: JobSession | None = None
    while True:
        try:
            kind, *content = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if kind == "job":
                if session is not None:
                    session.close()
                session = JobSession(content[0])
            else:
                assert session is not None
                span, notebook = content
                pipe.send(("done", span, session.run(span, notebook=notebook, meter=meter)))
        except UserError as error:
            pipe.send(("refused", str(error)))
        except Exception:
            pipe.send(("fault", traceback.format_exc()))


def _end_with(driver: int) -> None:
    """End this process when its driver is gone, even in the middle of a piece."""

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch the driver").start()


def main() -> None:
    # the driver decides what Ctrl-C means: it started this process with the signal blocked
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = print_note  # as the driver shows its own
    _end_with(int(sys.argv[2]))
    with contextlib.suppress(ConnectionError), Connection(int(sys.argv[1])) as pipe:  # the driver may hang up first
        serve(pipe)


if __name__ == "__main__":
    main()
