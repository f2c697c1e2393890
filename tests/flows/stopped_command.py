"""Commands that are stopped in the middle: a network that notes every batch and waits at one of them for a file `go`.

A test module imports the fixture `blocking`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import hardtack as ht
from hardtack.data import batches
from processes import Started, start

BATCH, COUNT = 4, 48  # a piece is one batch
AT = 7  # the batch that is waited at
NET = """
import time
from pathlib import Path
import torch

FOLDER = Path({folder!r})

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.GELU(),
                                          torch.nn.Linear(16, 10))

    def forward(self, x):
        name = f"{{x.double().sum():.5f}}"
        while name == {name!r} and len(x) == {batch} and not (FOLDER / "go").exists():
            (FOLDER / "waits").touch()
            time.sleep(0.05)
        with open(FOLDER / "batches", "a") as file:
            file.write(name + "\\n")
        return 3 * self.layers(torch.nn.functional.avg_pool2d(x, x.shape[-1] // 8))

def build(num_classes):
    return Net()
"""


class Blocking:
    """The words of an evaluation that waits at one batch until `go` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        images = ht.load_data("digits", "test").first(COUNT)
        self.names = [f"{batch.x.double().sum():.5f}" for batch in batches(images, BATCH, device="cpu", workers=0)]
        (folder / "net.py").write_text(NET.format(folder=str(folder), name=self.names[AT], batch=BATCH))
        self.words = [
            "evaluate", f"model={folder / 'net.py'}:build", "data=digits", f"n={COUNT}", "suite=clean",
            f"batch_size={BATCH}", "runtime.device=cpu",
        ]  # fmt: skip

    def start(self, output: str, *more: str) -> Started:
        return start(*self.words, f"output={self.folder / output}", *more, cwd=self.folder)

    def go(self) -> None:
        (self.folder / "go").touch()

    def wait_until_the_rest_is_finished(self, output: str) -> None:
        """Until one worker waits and the others have finished all other pieces."""
        wait_for(lambda: (self.folder / "waits").exists() and len(self.pieces(output)) == len(self.names) - 1)

    def pieces(self, output: str) -> list[str]:
        """The finished pieces on disk."""
        return sorted(path.name for path in (self.folder / output / "verdicts").glob(".*/*.parquet"))

    def computed(self) -> dict[int, int]:
        """How often each batch was computed in full since the last call."""
        path = self.folder / "batches"
        lines = path.read_text().splitlines()
        path.unlink()
        return {number: lines.count(name) for number, name in enumerate(self.names)}

    def verdicts(self, output: str) -> str:
        """All columns, as text: NaN is equal to NaN, and every other number to itself alone."""
        return repr(pq.read_table(next((self.folder / output / "verdicts").glob("*.parquet"))).to_pydict())


@pytest.fixture
def blocking(tmp_path: Path) -> Iterator[Blocking]:
    made = Blocking(tmp_path)
    yield made
    made.go()  # a test that failed leaves no process waiting


def said(started: Started) -> str:
    """What a running command has written to stderr so far."""
    return started.files[1].read_text() if started.files[1].exists() else ""


def check_killed_and_repeated(blocking: Blocking, *more: str) -> None:
    """Kill a command when all pieces but one are finished, and repeat it: only that piece is computed again."""
    first = blocking.start("run", *more)
    blocking.wait_until_the_rest_is_finished("run")
    kill(first)
    done = blocking.computed()
    blocking.go()
    second = blocking.start("run", *more).wait()
    assert second.returncode == 0, second.stderr
    again = blocking.computed()
    assert [number for number, times in done.items() if not times] == [AT]
    assert [number for number, times in again.items() if times] == [AT], "only the lost piece is computed again"
    assert blocking.start("alone").wait().returncode == 0
    assert blocking.verdicts("run") == blocking.verdicts("alone")


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """A limit for a test that hangs; no test depends on it."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


def kill(started: Started) -> None:
    """SIGKILL, as the system does when memory runs out."""
    os.kill(started.pid, 9)
    assert started.wait().returncode == -9
