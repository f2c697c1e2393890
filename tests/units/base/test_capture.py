"""What becomes of a model that runs, but cannot be recorded as a CUDA graph."""

import contextlib

import pytest
import torch

from hardtack.base.capture import record


@pytest.fixture(autouse=True)
def recording_without_a_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: "a graph")
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **how: contextlib.nullcontext())


def test_a_function_is_recorded_with_what_it_returns():
    assert record(lambda: 7) == ("a graph", 7)


def test_a_model_that_waits_for_the_device_runs_unrecorded_and_says_so():
    def waits():
        raise RuntimeError("operation not permitted when stream is capturing\nand a long trace")

    with pytest.warns(UserWarning, match=r"cannot be recorded.*not permitted when stream is capturing\)"):
        assert record(waits) == (None, None)


def test_running_out_of_memory_stays_what_it_is():
    def runs_out():
        raise torch.OutOfMemoryError("no room")

    def ends_badly():
        try:
            runs_out()
        finally:
            raise RuntimeError("the recording broke off")

    for function in (runs_out, ends_badly):
        with pytest.raises(torch.OutOfMemoryError):
            record(function)
