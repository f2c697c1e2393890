"""A job for tests of executors; workers receive this file as they receive a user's own. It logs every piece."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from hardtack.base.errors import UserError
from hardtack.engine import Job, PieceResult, PieceStore


class Toy(Job):
    """Row i has the value i²; a piece may kill its process once, or fail."""

    title, total = "toy", 24

    def __init__(
        self, folder, *, kill=(), seconds=0.0, mistake=None, fault=None, size=2, needs=None, always=False,
        dies_loading=False,
    ):  # fmt: skip
        self.folder, self.kill, self.seconds, self.size = Path(folder), set(kill), seconds, size
        self.mistake, self.fault, self.needed = mistake, fault, needs or {}
        self.always, self.dies_loading = always, dies_loading
        self.store = PieceStore(self.folder, "toy-0")
        self.driver, self.reports = os.getpid(), []

    def __setstate__(self, state):
        self.__dict__ |= state
        (self.folder / "unpacked").touch()
        if self.dies_loading:
            os.kill(os.getpid(), signal.SIGKILL)

    def piece_size(self, most):
        return self.size

    def needs(self, span):
        return self.needed.get(span.start, ())

    def inputs(self, spans):
        return (np.arange(*span) for span in spans)

    def log(self, word, span):
        with open(self.folder / "log", "a") as file:
            file.write(f"{word} {span.start} {os.getpid()}\n")

    def run(self, span, inputs, *, notebook, meter):
        self.log("begin", span)
        marker = self.folder / f"killed-{span.start}"
        if span.start in self.kill and (self.always or not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if span.start == self.mistake:
            raise UserError("image 7 is black")
        if span.start == self.fault:
            raise ZeroDivisionError("one by zero")
        meter.note("squares", 0.5)
        time.sleep(self.seconds)
        self.log("end", span)
        return PieceResult(columns={"row": inputs, "value": inputs**2}, report={"pid": os.getpid()})

    def collect(self, span, result):
        self.reports.append((span.start, result.report["pid"]))

    def finish(self, columns, arrays, *, is_main):
        return columns


def lines(folder, word):
    """The first rows of the pieces that were begun or ended, in order."""
    return [int(line.split()[1]) for line in (Path(folder) / "log").read_text().splitlines() if line.startswith(word)]


def pids(folder):
    return {int(line.split()[2]) for line in (Path(folder) / "log").read_text().splitlines()}
