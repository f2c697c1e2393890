"""Processes that share a machine divide its cores between their decoders."""

import os
import subprocess
import sys

import numpy as np
import pytest

from hardtack.base.cores import give_share_of_cores, share_of_cores, usable_cores
from hardtack.data import loading
from hardtack.engine.executors.here import worker_environment


def test_a_worker_knows_its_share(monkeypatch):
    monkeypatch.delenv("HARDTACK_CORES", raising=False)
    assert share_of_cores() == usable_cores()
    monkeypatch.setenv("HARDTACK_CORES", worker_environment({}, gpu=None, threads=3)["HARDTACK_CORES"])
    assert share_of_cores() == 3
    give_share_of_cores(os.environ, 0)
    assert share_of_cores() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_a_process_that_is_bound_to_fewer_cores_counts_those():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    code += "from hardtack.base.cores import usable_cores; print(usable_cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("word", ["", "many", "0", "-2"])
def test_other_values_are_ignored(monkeypatch, word):
    monkeypatch.setenv("HARDTACK_CORES", word)
    assert share_of_cores() == usable_cores()


def test_decoders_are_no_more_than_the_share(monkeypatch, tmp_path):
    from PIL import Image

    from hardtack.data import DataConfig, batches, load_data

    for label in ("a", "b"):
        (tmp_path / "test" / label).mkdir(parents=True)
        for number in range(2):
            image = Image.fromarray(np.full((8, 8, 3), number, dtype=np.uint8))
            image.save(tmp_path / "test" / label / f"{number}.png")
    asked = []
    streamed = loading._streamed
    monkeypatch.setattr(
        loading, "_streamed", lambda *given, **named: asked.append(given[3]) or streamed(*given, **named)
    )
    monkeypatch.setenv("HARDTACK_CORES", "1")
    data = load_data(DataConfig(name=f"folder:{tmp_path}", stream=True, workers=4), "test")
    assert sum(len(batch.x) for batch in batches(data, 2, device="cpu")) == 4 and asked == [1]
