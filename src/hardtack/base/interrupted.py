"""What a command says and returns after Ctrl-C."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # 128 + SIGINT, which typer returns too


def say_interrupted() -> int:
    """Print one line, and return the exit code."""
    print("hardtack: interrupted; repeat the command to resume", file=sys.stderr)
    return INTERRUPTED
