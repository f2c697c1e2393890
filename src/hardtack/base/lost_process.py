"""When one process of a launch ends early, the others end too, with one sentence instead of a traceback of torch's."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from hardtack.base.errors import UserError

# words of gloo's, NCCL's and the store's errors about a process that does not answer any more
_SIGNS = (
    "closed by peer", "connection reset", "connection refused", "broken pipe", "connection closed", "likely closed",
    "timed out", "timeout", "socket", "remote process exited", "nccl", "gloo", "failed to recv", "failed to send",
    "broadcastuniquencclid", "store->get",
)  # fmt: skip


class LostProcess(UserError):
    """Another process of the launch has ended."""


@contextlib.contextmanager
def explain_lost_process(processes: int, kept: str) -> Iterator[None]:
    """Turn the failure of an exchange with other processes, and SIGTERM, into a `LostProcess`.

    `kept` says what a repeated call finds: "finished pieces are kept". Launchers send SIGTERM to the remaining
    processes when one has failed; a process that computes at that moment would otherwise end without a word.
    """
    if processes == 1:
        yield
        return
    with _terminated(kept):
        try:
            yield
        except RuntimeError as error:
            text = str(error).lower()
            if isinstance(error, UserError) or not any(sign in text for sign in _SIGNS):
                raise
            raise LostProcess(
                f"another process of this launch has ended or does not answer; its own message says why. {kept}: "
                f"repeat the command to continue ({' '.join(str(error).split())[:160]})"
            ) from error


@contextlib.contextmanager
def _terminated(kept: str) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise LostProcess(
            f"stopped by SIGTERM, as launchers do when another process of the launch has failed. {kept}: repeat the "
            "command to continue"
        )

    before = signal.getsignal(signal.SIGTERM)
    is_ours = before is signal.SIG_DFL  # otherwise somebody else takes care of it
    if is_ours:
        try:
            signal.signal(signal.SIGTERM, end)
        except ValueError:  # not the main thread, where no handler can be set
            is_ours = False
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, before)
