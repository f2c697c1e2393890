"""A clock and a memory meter that a test moves by hand."""

from __future__ import annotations

import torch

from hardtack.base.instruments import Instruments, Load, Moment


class FakeInstruments(Instruments):
    """`pass_time(seconds, delayed)` is what anything takes; `resident` is what the memory meter would show."""

    def __init__(self, *, start_s: float = 0.0) -> None:
        self.wall_s, self.delayed_s, self.start_s = start_s, 0.0, start_s
        self.began, self.whole_process = Moment(0.0), False
        self.resident_mb = self.peak = 100.0

    def pass_time(self, seconds: float, *, waiting: float = 0.0) -> None:
        """`waiting`: how many further seconds the process waited for a core."""
        self.wall_s += seconds + waiting
        self.delayed_s += waiting

    def use(self, megabytes: float) -> None:
        self.peak = max(self.peak, self.resident_mb + megabytes)

    def now(self) -> Moment:
        return Moment(self.wall_s, self.delayed_s)

    def finished(self, device: torch.device) -> Moment:
        return self.now()

    def begin_memory(self, device: torch.device) -> None:
        self.peak = self.resident_mb

    def peak_mb(self, device: torch.device) -> float:
        return self.peak

    def load(self, device: torch.device) -> Load:
        return Load(self.delayed_s / max(self.wall_s, 1e-9), 2)
