"""`--on ray`: a real cluster of two nodes on this machine; actors, a raylet and trainings are killed."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hostile_pieces import check_hostile
from same_results import check_equal
from stopped_command import blocking, check_killed_and_repeated

import hardtack as ht
from hardtack.base import user_files
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.engine import packing, run_job
from hardtack.models.user_code import run_file, travelling_code
from required import require_ray

ray = require_ray()

from hardtack.engine.executors import ray as executor_ray  # noqa: E402
from hardtack.engine.executors.ray import RayExecutor, RaySettings  # noqa: E402

HERE = Path(__file__).parent
pytest_plugins = ("ray_cluster",)
__all__ = ["blocking"]  # a fixture
pytestmark = pytest.mark.xdist_group("ray")  # one cluster for all of them


def toy(folder, **settings):
    user_files.begin_command()
    module = run_file(HERE / "toy_job.py").module
    return module.Toy(folder, **settings), module


def run(job, **settings):
    with RayExecutor(Runtime(device="cpu"), RaySettings(**{"workers": 2, **settings})) as executor:
        executor.steps = travelling_code
        columns = run_job(job, store=job.store, executor=executor, quiet=True)
    assert columns["value"].tolist() == [row**2 for row in range(24)]
    return executor


def test_actors_that_die_are_replaced(address, tmp_path):
    job, module = toy(tmp_path, kill=(4, 10))
    executor = run(job)
    begun = module.lines(tmp_path, "begin")
    assert {row for row in begun if begun.count(row) > 1} == {4, 10}, "only lost pieces are computed again"
    assert len(module.lines(tmp_path, "end")) == 12 and executor.started == 4
    assert (tmp_path / "unpacked").exists()
    assert len({pid for _, pid in job.reports}) >= 2 and os.getpid() not in module.pids(tmp_path)


def test_mistakes_in_an_actor_are_the_users_line(address, tmp_path):
    with pytest.raises(UserError, match="image 7 is black"):
        run(toy(tmp_path, mistake=6)[0], workers=1)


def test_a_node_that_dies_costs_its_pieces_only(cluster, address, tmp_path):
    job, module = toy(tmp_path, seconds=0.4)
    node = cluster.add_node(num_cpus=1)

    def remove():
        while not (tmp_path / "log").exists() or len(module.lines(tmp_path, "end")) < 4:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    executor = run(job, workers=3)
    thread.join()
    ends = module.lines(tmp_path, "end")
    lost = executor.started - 3
    assert set(ends) == set(range(0, 24, 2))
    assert len(module.lines(tmp_path, "begin")) <= 12 + lost, "no piece was repeated but those of lost actors"


def test_a_worker_with_other_versions_is_refused(address, tmp_path, monkeypatch):
    """The actor does not unpack the job, which may hold classes that its version does not have."""
    real = packing.versions()
    for module in (packing, executor_ray):
        monkeypatch.setattr(module, "versions", lambda: {**real, "torch": "1.0"})
    with pytest.raises(UserError, match=rf"the Ray worker on .* torch {re.escape(real['torch'])} there, 1.0 here"):
        run(toy(tmp_path)[0], workers=1)
    assert not (tmp_path / "unpacked").exists()


def test_actors_that_always_die_while_loading_stop_the_job(address, tmp_path, monkeypatch):
    monkeypatch.setattr(executor_ray, "ATTEMPTS", 2)
    with pytest.raises(UserError, match="4 Ray actors were lost while they loaded the job"):
        run(toy(tmp_path, dies_loading=True)[0])


@pytest.mark.parametrize("place", ["ray://127.0.0.1:10001", "ray:ray://127.0.0.1:10001"])
def test_the_address_of_a_ray_client_is_refused(tmp_path, capsys, place):
    words = ["evaluate", "model=vit_digits", "data=digits", "suite=clean", "n=4", f"output={tmp_path / 'o'}"]
    assert main([*words, "--on", place]) == 2
    error = capsys.readouterr().err.strip()
    assert "is the address of a Ray client" in error and "ray start --address" in error and "\n" not in error


def test_no_cluster_is_one_line(tmp_path, capsys, monkeypatch):
    ray.shutdown()
    words = ["evaluate", "model=vit_digits", "data=digits", "suite=clean", "n=4", f"output={tmp_path / 'o'}"]
    assert main([*words, "--on", "ray:127.0.0.1:1"]) == 2
    error = capsys.readouterr().err.strip()
    assert "no connection to the cluster 127.0.0.1:1" in error and "\n" not in error


def test_a_script_that_has_begun_ray_itself_keeps_its_session(address):
    """A value that it has stored there is still there."""
    ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        stored = ray.put("mine")
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
        data = torch.rand(8, 3, 8, 8), torch.arange(8) % 2
        here = Runtime(device="cpu")
        ht.evaluate(model, data, suite="clean", batch_size=2, runtime=here, quiet=True, on="ray", workers=1)
        assert ray.get(stored) == "mine"
    finally:
        ray.shutdown()


NET = """
import torch
from scaling import SCALE  # a module beside the file travels too

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.GELU(),
                                          torch.nn.Linear(16, 2))
    def forward(self, x):
        return SCALE * self.layers(torch.nn.functional.avg_pool2d(x, x.shape[-1] // 8))

def build(num_classes):
    return Net()
"""


@pytest.fixture
def folder_of_images(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number}.png")
    return tmp_path / "images"


def test_evaluation_without_a_shared_disk(address, tmp_path, folder_of_images):
    """Images are streamed from the driver's disk, the model is a user's file: verdicts are equal to the bit."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "scaling.py").write_text("SCALE = 3")
    words = ["evaluate", f"model={tmp_path / 'net.py'}:build", f"data=folder:{folder_of_images}", "data.stream=true"]
    words += ["suite=pgd", "threat=linf:0.1", "attack.steps=4", "batch_size=4", "runtime.device=cpu"]
    assert main([*words, f"output={tmp_path / 'alone'}"]) == 0
    assert main([*words, f"output={tmp_path / 'cluster'}", "--on", "ray"]) == 0
    tables = [pq.read_table(next((tmp_path / name / "verdicts").glob("*.parquet"))) for name in ("alone", "cluster")]
    for name in tables[0].column_names:
        first, second = (table[name].to_numpy() for table in tables)
        assert np.array_equal(first, second, equal_nan=first.dtype.kind == "f"), name


def test_a_study_on_a_cluster_goes_on_from_the_checkpoint_of_a_lost_actor(address, tmp_path, monkeypatch):
    monkeypatch.setattr(executor_ray, "SYNC_S", 0.5)
    words = [
        "study",
        "architectures/table2",
        "rows=cccc,cctt",
        "data.limit=32",
        "train.epochs=1",
        "train.batch_size=16",
    ]
    words += ["validation.every=1", "validation.limit=4", "n=4", "runtime.device=cpu"]
    assert main([*words, f"output={tmp_path / 'alone'}"]) == 0
    killed = []

    def kill():
        """Kill an actor as soon as a checkpoint of its training has come back."""
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            time.sleep(0.05)
            if list((tmp_path / "cluster" / "models").glob("*/checkpoints/*")):
                killed.extend(_pids_of("PieceActor.run")[:1])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    assert main([*words, f"output={tmp_path / 'cluster'}", "--on", "ray", "workers=2"]) == 0
    thread.join()
    tables = [
        (tmp_path / name / "architectures" / "table2" / "smoke" / "table.csv").read_text()
        for name in ("alone", "cluster")
    ]
    assert tables[0] == tables[1]


def _pids_of(title):
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if title in path.read_text():
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def test_a_killed_command_goes_on_when_repeated(address, blocking):
    check_killed_and_repeated(blocking, "--on", "ray", "workers=2")


def test_sigterm_ends_the_command_with_one_line(address, blocking):
    command = blocking.start("run", "--on", "ray", "workers=2")
    blocking.wait_until_the_rest_is_finished("run")
    os.kill(command.pid, signal.SIGTERM)
    done = command.wait(60)
    assert done.returncode == 130, done
    assert done.stderr.strip().endswith("hardtack: interrupted; repeat the command to resume")
    assert "SIGTERM" not in done.stderr and "raylet" not in done.stderr, "no stack of Ray's"


def test_nothing_in_a_run_folder_is_unpickled(address, tmp_path):
    check_hostile(tmp_path, "--on", "ray", "workers=2")


def test_analyses_and_corrupted_copies_are_equal_to_the_bit(address, tmp_path):
    check_equal(tmp_path, "--on", "ray", "workers=2")
