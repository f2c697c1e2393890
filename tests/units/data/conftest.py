"""Lets the tests here and in contracts/ import `tiny` and `pictures`, whichever is run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a test fetches or indexes stays in a folder of that test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("HARDTACK_CACHE", str(folder))
    return folder
