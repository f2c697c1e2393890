"""`train --on ray` through Ray Train: the weights of one launch, a killed process, a mistake."""

import os
import signal
import time

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from stopped_command import said

from processes import ranks, start
from tiny_runs import MODEL, settings, write_data

pytest_plugins = ("ray_cluster",)
pytestmark = pytest.mark.xdist_group("ray")

DIES = """
import os, signal, time
from pathlib import Path
from hardtack.training import Trainer

step = Trainer.step
here = Path({folder!r})


def dying(self, batch):
    with (here / f"steps-{{self.runtime.rank}}").open("a") as file:
        file.write(f"{{self.progress.done}}\\n")
    if self.runtime.rank == 1 and self.progress.done == 3 and not (here / "died").exists():
        while not (here / "run/checkpoints/state.pt").exists():  # until a state has come back to the driver
            time.sleep(0.05)
        (here / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, batch)


Trainer.step = dying
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    base = tmp_path_factory.mktemp("ray")
    write_data(base / "data.npz", train=40, test=12)
    values = settings(base / "run", base / "data.npz", model=MODEL, output="run")
    values["train"] |= {"batch_size": 8, "epochs": 1}
    (base / "tiny.yaml").write_text(yaml.safe_dump(values))
    (base / "pair").mkdir()
    done = ranks("train", "../tiny.yaml", cwd=base / "pair")
    assert [each.returncode for each in done] == [0, 0], done
    return base


def on_ray(*words, cwd):
    """Ray Train looks at its processes every two seconds otherwise."""
    often = {"HARDTACK_SYNC_S": "0.2", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2"}
    return start(*words, "--on", "ray", "workers=2", cwd=cwd, **often).wait(240)


def assert_same(first, second):
    one, two = (load_file(folder / "run/checkpoints/last.safetensors") for folder in (first, second))
    assert one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_a_group_trains_what_two_processes_here_train(home, address):
    folder = home / "cluster"
    folder.mkdir()
    done = on_ray("train", "../tiny.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("trained: run") == 1 and "epoch 1/1" in done.stderr, "the first process is heard"
    assert_same(home / "pair", folder)
    assert (folder / "run/config.yaml").read_text() == (home / "pair/run/config.yaml").read_text()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_a_training_that_waits_for_machines(home, address, sent):
    folder = home / f"waiting-{sent.name}"
    folder.mkdir()
    driver = start("train", "../tiny.yaml", "--on", "ray", "workers=9", cwd=folder)
    until = time.monotonic() + 60
    while "room for 2 of 9 processes" not in said(driver):
        assert driver.running() and time.monotonic() < until
        time.sleep(0.1)
    time.sleep(3)  # until Ray Train waits for its workers
    os.kill(driver.pid, sent)
    done = driver.wait(60)
    assert done.returncode == 130 and done.stderr.strip().endswith("interrupted; repeat the command to resume")


@pytest.mark.slow
def test_a_killed_process_costs_the_steps_since_the_last_state(home, address):
    """Nothing but the driver's process writes into the run folder; the weights are those of two processes here."""
    folder = home / "killed"
    folder.mkdir()
    (folder / "dies.py").write_text(DIES.format(folder=str(folder)))
    done = on_ray("--import", "dies.py", "train", "../tiny.yaml", "train.checkpoint_every_s=0", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all start again from the last saved state" in done.stderr and done.stdout.count("trained: run") == 1
    steps = [int(line) for line in (folder / "steps-0").read_text().split()]
    assert (folder / "died").exists() and steps.count(0) == 1, "the second start went on"
    assert_same(home / "pair", folder)


@pytest.mark.slow
def test_a_mistake_in_the_group_is_one_line(home, address):
    folder = home / "mistake"
    folder.mkdir()
    (folder / "net.py").write_text(
        "import os, torch\n"
        "def build(num_classes):\n"
        "    if 'RANK' in os.environ:\n        raise ValueError('no weights on this machine')\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, num_classes))\n"
    )
    words = ["train", "data=digits", "model=net.py:build", "train.epochs=1", "output=run", "runtime.device=cpu"]
    done = on_ray(*words, cwd=folder)
    assert done.returncode == 2, done.stderr[-3000:]
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("hardtack: ") and "no weights on this machine" in last
    assert "start again" not in done.stderr, "nothing was lost"
