"""A long run that compiles while it trains: when it tries, what it keeps, and that a failure ends nothing."""

import pytest
import torch

from hardtack.base.runtime import Runtime
from hardtack.data import Batch
from hardtack.engine.executors.here import worker_environment
from hardtack.training import later_compilation
from hardtack.training.later_compilation import LaterCompilation
from hardtack.training.recipe import TrainConfig

BATCH = Batch(torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64), torch.arange(2))


class Gradient:
    """A gradient function of which a step takes so many seconds of the test's clock."""

    def __init__(self, seconds, error=None):
        self.seconds, self.error, self.calls = seconds, error, 0

    def __call__(self, x, y, prepared, *, last):
        self.calls += 1
        if self.error is not None:
            raise self.error
        clock["s"] += self.seconds
        return {"loss": torch.zeros(())}


class Objective:
    """Also its own adversary."""

    def __init__(self, error=None):
        self.error, self.searches, self.model = error, ["recorded"], torch.nn.Linear(1, 1)
        self.adversary = self

    def __call__(self, x, y):
        if self.error is not None:
            raise self.error
        return x

    def compile_blocks(self, runtime):
        self.searches.append("compiled")

    def accelerate(self, runtime):
        self.searches.append("recorded")


clock = {"s": 0.0}


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(later_compilation, "RecordedLossGradient", Gradient)
    monkeypatch.setattr(LaterCompilation, "_now", lambda self: clock["s"])

    def run(recorded, compiled, *, steps=100, left=100_000, objective=None, compile=None):
        clock["s"], notes, objective = 0.0, [], objective or Objective()

        monkeypatch.setattr(later_compilation, "with_compiled_blocks", lambda *settings: compiled)
        runtime = Runtime(device="cpu", compile=compile)
        later = LaterCompilation(objective, runtime, TrainConfig(), recorded, note=notes.append)
        current = recorded
        for step in range(steps):
            current(BATCH.x, BATCH.y, {}, last=True)
            current = later.after_step(current, left - step, BATCH)
        return current, notes, objective

    return run


def test_the_faster_function_stays(run):
    current, notes, objective = run(Gradient(0.1), fast := Gradient(0.05))
    assert current is fast and "2.00 ×" in notes[-1] and objective.searches == ["recorded", "compiled"]


def test_the_slower_function_goes(run):
    current, notes, objective = run(slow := Gradient(0.1), Gradient(0.11))
    assert current is slow and "no faster (0.91 ×)" in notes[-1]
    assert objective.searches == ["recorded", "compiled", "recorded"]  # the attack, too, is as it was


@pytest.mark.parametrize("where", ["update", "attack"])
def test_a_failure_ends_nothing(run, where):
    error = RuntimeError("graph\nbreak")
    objective = Objective(error if where == "attack" else None)
    compiled = Gradient(0.05, error if where == "update" else None)
    current, notes, objective = run(slow := Gradient(0.1), compiled, objective=objective)
    assert current is slow and slow.calls == 100
    assert notes[-1] == "compiling failed (graph break): training goes on from CUDA graphs"
    assert objective.searches == ["recorded", "compiled", "recorded"]


def test_blocks_with_convolutions_gain_and_are_tried_sooner():
    convolution = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1)) for _ in range(2)))
    linear = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(3, 3)) for _ in range(2)))
    stem = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), linear)  # a convolution that is not repeated
    assert later_compilation.worth_s(convolution) == 240
    assert later_compilation.worth_s(linear) == later_compilation.worth_s(stem) == 1800


def test_times_on_a_shared_gpu_decide_nothing(run, monkeypatch):
    monkeypatch.setenv(
        "HARDTACK_SHARED_GPU", worker_environment({}, gpu="0", threads=1, shared=True)["HARDTACK_SHARED_GPU"]
    )
    current, notes, objective = run(slow := Gradient(0.1), Gradient(0.05))
    assert current is slow and notes == [] and objective.searches == ["recorded"]


def test_short_runs_and_runs_that_say_so_do_not_compile(run):
    for words in ({"left": 17_900}, {"compile": False}):
        current, notes, objective = run(slow := Gradient(0.1), Gradient(0.05), **words)
        assert current is slow and notes == [] and objective.searches == ["recorded"]
