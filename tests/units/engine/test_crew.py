"""The workers that `plan --on` counts on."""

import pytest

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.engine import crew
from hardtack.engine.executors import here

CPU = Runtime(device="cpu")


@pytest.fixture
def machine(monkeypatch):
    """A machine with four GPUs and sixteen cores."""
    monkeypatch.setattr(here, "visible_gpus", lambda runtime: ["0", "1", "2", "3"] if runtime.device != "cpu" else [])
    monkeypatch.setattr(crew, "usable_cores", lambda: 16)


@pytest.mark.parametrize(
    ("settings", "workers", "gpus", "sharing"),
    [({}, 4, 1.0, 1.0), ({"workers": 2}, 2, 1.0, 1.0), ({"per_gpu": 2}, 8, 0.5, 2.0)],
)
def test_this_machine_with_gpus(machine, settings, workers, gpus, sharing):
    found = crew.crew_of("here", settings, Runtime())
    assert (found.workers, found.gpus, found.sharing) == (workers, gpus, sharing)
    assert found.threads is None and "4 GPUs and 16 CPU cores" in found.room


def test_this_machine_without_gpus(machine):
    found = crew.crew_of("here", {"workers": 8}, CPU)
    assert (found.workers, found.gpus, found.threads) == (8, 0.0, 2)
    assert crew.crew_of("here", {"workers": 32}, CPU).sharing == 2.0, "two workers share a core"


class Cluster:
    """As Ray answers: two machines of eight GPUs are up, one is gone."""

    closed = 0

    def __init__(self, address):
        self.ray = self

    def cluster_resources(self):
        return {"GPU": 16.0, "CPU": 64.0}

    def nodes(self):
        return [{"Alive": True}, {"Alive": True}, {"Alive": False}]

    def close(self):
        Cluster.closed += 1


def test_a_ray_cluster_is_asked_for_its_gpus(monkeypatch):
    monkeypatch.setattr(crew, "Connection", Cluster)
    found = crew.crew_of("ray", {}, Runtime())
    assert found.workers == 16 and found.gpus == 1.0 and "16 GPUs and 64 CPU cores on 2 machines" in found.room
    assert crew.crew_of("ray", {"workers": 4}, Runtime()).workers == 4
    assert "room for 16 of 40 workers" in crew.crew_of("ray", {"workers": 40}, Runtime()).room
    with pytest.raises(UserError, match="room for 16"):
        crew.crew_of("ray", {"workers": 40}, Runtime(), trains=True)
    assert Cluster.closed == 4, "no connection is left open"


def test_slurm_tasks_are_taken_at_their_word():
    found = crew.crew_of("slurm", {"workers": 8, "gpus": 1, "hours": 4}, Runtime())
    assert (found.workers, found.gpus) == (8, 1) and found.slurm.hours == 4
    assert crew.crew_of("slurm", {"nodes": 2, "gpus": 4}, Runtime(), trains=True).workers == 8
    with pytest.raises(UserError, match=r"slurm\.nodes"):
        crew.crew_of("slurm", {"workers": 8}, Runtime(), trains=True)


def test_other_names_and_shares_of_a_gpu_in_a_training_are_refused():
    with pytest.raises(UserError, match="here, ray, slurm"):
        crew.crew_of("torchrun", {}, Runtime())
    with pytest.raises(UserError, match="per_gpu"):
        crew.crew_of("here", {"per_gpu": 2}, Runtime(), trains=True)
