"""The verifier's forward passes: how many images a recorded one holds."""

import pytest
import torch
from torch import nn

from hardtack.attacks.pool import verifier as module
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.runtime import Runtime

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 10)).eval()


@pytest.fixture
def recorded(monkeypatch):
    """The sizes of the batches that would be recorded as graphs."""
    sizes = []

    class Stand:
        def __init__(self, function):
            self.function = function

        def __call__(self, x):
            sizes.append(len(x))
            return self.function(x)

    monkeypatch.setattr(module, "Captured", Stand)
    monkeypatch.setattr(Runtime, "captures", property(lambda self: True))
    return sizes


@pytest.mark.parametrize("batch_size, sizes", [(4, {4}), (100, {16, 64, 100}), (512, {16, 64, 256, 512})])
def test_few_sizes_are_recorded_and_none_beyond_the_batch_that_fits(recorded, batch_size, sizes):
    x = torch.rand(700, 3, 4, 4)
    ask = Verifier(MODEL, Runtime(device="cpu"), batch_size=batch_size)
    for count in (1, 3, 17, 50, 90, 257, 300, 512, 700):
        assert torch.allclose(ask.logits(x[:count]), MODEL(x[:count]), atol=1e-5)
    assert set(recorded) == sizes
    assert len(ask._recorded) == len(sizes)


def test_recordings_of_larger_batches_are_dropped_when_memory_runs_out(recorded):
    class Small(nn.Module):
        most = 512

        def forward(self, x):
            if len(x) > self.most:
                raise torch.OutOfMemoryError("too many")
            return MODEL(x)

    model, x = Small(), torch.rand(40, 3, 4, 4)
    ask = Verifier(model, Runtime(device="cpu"), batch_size=64)
    ask.logits(x)
    model.most = 5
    assert torch.allclose(ask.logits(x), MODEL(x), atol=1e-5)
    assert ask.batch_size == 4 and set(ask._recorded) == {4}
