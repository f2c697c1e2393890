"""How far, how fast, how long still: one bar for everything that takes a while."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hardtack.base.printable import printable

EVERY_S = 30.0  # between two lines where there is no terminal
NOTE_EVERY_S = 0.5  # between two notes to a listener


class Listener(Protocol):
    """Who hears of the progress in a process that nobody looks at."""

    def note(self, text: str, share: float) -> None:
        """What is being done, and how much of the whole is finished."""

    def say(self, line: str) -> None:
        """A line for the user."""


_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar("listener", default=None)


@contextlib.contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """Meters that are made inside the block tell the listener what they would show, unless they are quiet."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Meter:
    """A progress bar with images (or what `unit` says) per second and time left on a terminal; else a line at times."""

    def __init__(self, title: str, *, total: int, done: int = 0, quiet: bool = False, unit: str = "img") -> None:
        self.console = Console(file=sys.stderr, quiet=quiet)
        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self._task = self._bar.add_task(printable(title), total=total, completed=done, note="")
        self._since, self._images, self._done, self._total = time.monotonic(), 0, done, total
        self._title, self._told, self._unit = title, time.monotonic(), unit
        self._listener, self._noted = None if quiet else _listener.get(), 0.0

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, images: int, note: str = "") -> None:
        self._images += images
        rate = self._images / max(time.monotonic() - self._since, 1e-9)
        self._done += 1
        count = f"{self._done}/{self._total}"
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        self._update(self._done, f"{count} {speed} {self._unit}/s {note}")

    def note(self, text: str, share: float = 0.0) -> None:
        """What is being done, and how much of the step under way that is."""
        self._update(self._done + min(max(share, 0.0), 0.999), text)

    def _update(self, completed: float, note: str) -> None:
        self._bar.update(self._task, completed=completed, note=printable(note))
        if self._listener is not None:
            if time.monotonic() - self._noted >= NOTE_EVERY_S:
                self._noted = time.monotonic()
                self._listener.note(note, completed / max(self._total, 1))
        elif not self.console.is_terminal and time.monotonic() - self._told > EVERY_S:
            self._told = time.monotonic()
            self.say(f"{self._title}: {100 * completed / max(self._total, 1):.0f} %  {note}")

    def say(self, line: str) -> None:
        """As it stands: brackets are no markup, and a log has no width."""
        if self._listener is not None:
            self._listener.say(line)
            return
        self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
