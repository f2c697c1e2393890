"""Objectives that are called without keys draw fresh random numbers; most tests here call them twice and compare."""

import pytest
import torch

from hardtack.base import randomness


@pytest.fixture(autouse=True)
def keys_by_position(request, monkeypatch):
    """Keys are positions in the batch, but for tests that are about fresh random numbers (test_fresh_starts.py)."""
    if request.path.stem != "test_fresh_starts":
        monkeypatch.setattr(randomness, "fresh_keys", lambda count, device: torch.arange(count, device=device))
