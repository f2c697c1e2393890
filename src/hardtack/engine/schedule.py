"""Which piece is computed next: long ones first, after the pieces that they need; lost ones are handed out again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hardtack.base.errors import UserError
from hardtack.engine.pieces import Span

ATTEMPTS = 4  # so many losses of one piece end the job
_HOUR_S = 3600.0  # of work on a piece allows one loss more: a training of days outlives many machines


class Schedule:
    """The pieces of one job that are waiting, running and finished. It knows nothing of processes or machines.

    A worker that asks for work gets the piece that is expected to take longest among those whose needs are finished:
    near the end only short pieces are left, and no worker waits long for the last one.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        expected: Callable[[Span], float] = lambda span: float(span.rows),
        needs: Callable[[Span], Sequence[int]] = lambda span: (),
        attempts: int = ATTEMPTS,
    ) -> None:
        order = sorted(spans, key=lambda span: (-expected(span), span))
        self._rows_left = {row for span in spans for row in range(*span)} if any(map(needs, spans)) else set()
        self._needs = {span: tuple(row for row in needs(span) if row in self._rows_left) for span in spans}
        self._waiting = order
        self._attempts = attempts
        self.clock: Callable[[], float] = time.monotonic
        self._began: dict[Span, float] = {}
        self._worked: dict[Span, float] = {}  # seconds of lost workers on a piece
        self.running: set[Span] = set()
        self.losses: dict[Span, int] = {}
        self.finished = 0

    @property
    def done(self) -> bool:
        return not self._waiting and not self.running

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self) -> Span | None:
        """The next piece; None while there is none that can begin."""
        for place, span in enumerate(self._waiting):
            if not any(row in self._rows_left for row in self._needs[span]):
                del self._waiting[place]
                self.running.add(span)
                self._began[span] = self.clock()
                return span
        if self._waiting and not self.running:
            raise RuntimeError(f"the pieces {self._waiting[:3]} need each other")
        return None

    def finish(self, span: Span) -> None:
        """A piece is kept."""
        self.running.discard(span)
        self._rows_left.difference_update(range(*span))
        self.finished += 1

    def lose(self, span: Span, why: str) -> None:
        """The worker of a piece is gone: the piece is the next to be handed out, unless it was lost too often."""
        self.running.discard(span)
        self.losses[span] = self.losses.get(span, 0) + 1
        self._worked[span] = self._worked.get(span, 0.0) + self.clock() - self._began.get(span, self.clock())
        if self.losses[span] >= self._attempts + self._worked[span] // _HOUR_S:
            raise UserError(
                f"rows {span.start} to {span.stop - 1} were lost {self.losses[span]} times, the last time because "
                f"{why}. Finished pieces are kept: repeat the command to continue, with fewer workers if memory is "
                "short"
            )
        self._waiting.insert(0, span)
