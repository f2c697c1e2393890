"""SIGTERM, which cluster schedulers send before they kill a job: the run saves its state and exits."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def catch_sigterm() -> Iterator[list[int]]:
    """A list to which SIGTERM is appended when it arrives, so that the loop can save its state after the step."""
    received: list[int] = []
    try:
        before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    except ValueError:  # not the main thread, where no handler can be set: the last saved state remains
        yield received
        return
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def exit_with_first_process(received: list[int]) -> Iterator[None]:
    """After a signal the first process saves and exits; the others then fail in their next exchange, and exit too."""
    try:
        yield
    except RuntimeError as error:
        if not received or not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            raise
        raise SystemExit(128 + received[0]) from error
