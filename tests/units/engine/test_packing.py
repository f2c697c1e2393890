"""Jobs that travel, and workers of other versions."""

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.engine import Executor, Job
from hardtack.engine.executors.here import Here, HereSettings, number_of_workers, worker_environment
from hardtack.engine.executors.ray import RaySettings, actor_share
from hardtack.engine.packing import check_versions, pack, source_digest, unpack, versions


class Carrying(Job):
    title, total = "carrying", 1

    def __init__(self):
        self.weights, self.executor = torch.arange(3.0), Executor()


def test_a_job_arrives_with_its_tensors():
    job = unpack(pack(Carrying()))
    assert job.weights.tolist() == [0, 1, 2] and type(job.executor) is Executor


def test_executors_do_not_travel():
    job = Carrying()
    job.executor = Here.__new__(Here)
    assert type(unpack(pack(job)).executor) is Executor, "a worker must not start workers"


def test_steps_are_done_before_the_job_is_unpacked():
    done = []
    _STEPS.append(done)
    unpack(pack(Carrying(), [_step]))
    assert done == ["step"]


_STEPS = []


def _step():
    _STEPS[-1].append("step")


def test_a_class_inside_a_function_is_named():
    class Local(Job):
        title, total = "local", 1

    with pytest.raises(UserError, match=r"local cannot be sent to other processes.*Local"):
        pack(Local())


@pytest.mark.parametrize("name", ["hardtack", "torch", "Python"])
def test_other_versions_are_refused_and_both_named(name):
    theirs = {**versions(), name: "0.0.7"}
    with pytest.raises(UserError) as refused:
        check_versions(theirs, "worker w")
    assert f"{name} 0.0.7 there, {versions()[name]} here" in str(refused.value) and "worker w" in str(refused.value)
    check_versions(versions(), "worker w")
    with pytest.raises(UserError, match=r"unknown there"):
        check_versions({}, "worker w")


def test_the_source_is_part_of_the_version():
    assert source_digest() in versions()["hardtack"]


@pytest.mark.parametrize(
    "settings, gpus, workers",
    [({}, 0, 1), ({}, 4, 4), ({"workers": 3}, 0, 3), ({"per_gpu": 2}, 2, 4), ({"workers": 2}, 4, 2)],
)
def test_workers_by_gpus(settings, gpus, workers):
    assert number_of_workers(HereSettings(**settings), gpus=gpus) == workers


def test_more_workers_than_gpus_need_a_word():
    with pytest.raises(UserError, match="workers=4 on 2 GPUs: add per_gpu=2"):
        number_of_workers(HereSettings(workers=4), gpus=2)
    with pytest.raises(UserError, match="per_gpu is for machines with a GPU"):
        number_of_workers(HereSettings(per_gpu=2), gpus=0)


def test_a_worker_has_one_gpu_its_cores_and_no_rank():
    outer = {"RANK": "3", "WORLD_SIZE": "4", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert worker_environment(outer, gpu="1", threads=2) == {
        "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2", "HARDTACK_CORES": "2",
    }  # fmt: skip
    assert worker_environment({"OMP_NUM_THREADS": "1"}, gpu=None, threads=2)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "settings, resources, expected",
    [
        ({}, {"CPU": 8.0}, (0.0, 8)),
        ({}, {"CPU": 8.0, "GPU": 2.0}, (1.0, 2)),
        ({"per_gpu": 2}, {"CPU": 8.0, "GPU": 2.0}, (0.5, 4)),
        ({"workers": 5}, {"CPU": 8.0}, (0.0, 5)),
        ({"cpus": 4.0}, {"CPU": 8.0, "GPU": 4.0}, (1.0, 2)),
        ({"gpus": 0}, {"CPU": 3.0, "GPU": 1.0}, (0.0, 3)),
    ],
)
def test_actors_by_resources(settings, resources, expected):
    assert actor_share(RaySettings(**settings), resources) == expected


def test_actors_that_no_cluster_can_start_are_refused():
    with pytest.raises(UserError, match=r"ray.gpus=2 .* has 1 GPUs"):
        actor_share(RaySettings(gpus=2), {"CPU": 8.0, "GPU": 1.0})
    with pytest.raises(UserError, match=r"ray.cpus=9 .* has 8 CPU"):
        actor_share(RaySettings(cpus=9), {"CPU": 8.0})
