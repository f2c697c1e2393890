"""`train` in several processes: workers=N, two nodes of torchrun, a Slurm job. The weights are those of one launch."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from hardtack.commands.cli import main
from processes import COMMAND, environment, free_port, hardtack, ranks
from tiny_runs import MODEL, settings, write_data

pytest_plugins = ("slurm_cluster",)

SLURM = ["--on", "slurm", "slurm.gpus=0", "slurm.hours=0.1", "slurm.poll_s=0.3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A recipe, and the folder `pair` with what two processes make of it."""
    base = tmp_path_factory.mktemp("places")
    write_data(base / "data.npz", train=40, test=12)
    values = settings(base / "run", base / "data.npz", model=MODEL, output="run")
    values["train"] |= {"batch_size": 8, "epochs": 1}
    (base / "tiny.yaml").write_text(yaml.safe_dump(values))
    (base / "pair").mkdir()
    done = ranks("train", "../tiny.yaml", cwd=base / "pair")
    assert [each.returncode for each in done] == [0, 0], done
    return base


def place(home, name):
    folder = home / name
    folder.mkdir()
    return folder


def assert_same(first, second):
    one, two = (load_file(folder / "run/checkpoints/last.safetensors") for folder in (first, second))
    assert one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)
    configs = [(folder / "run/config.yaml").read_text() for folder in (first, second)]
    assert configs[0] == configs[1]


def test_workers_on_this_machine_are_started_by_torchrun(home):
    folder = place(home, "workers")
    done = hardtack("train", "../tiny.yaml", "workers=2", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("trained: run") == 1
    assert_same(home / "pair", folder)


def test_a_mistake_and_ctrl_c_with_workers_are_lines_without_a_traceback(home):
    folder = place(home, "mistakes")
    done = hardtack("train", "../tiny.yaml", "workers=2", "model.name=nope", cwd=folder)
    assert done.returncode == 2 and "there is no model 'nope'" in done.stderr
    assert all(line.startswith("hardtack: ") for line in done.stderr.strip().splitlines()), done.stderr
    driver = subprocess.Popen(
        [COMMAND, "train", "../tiny.yaml", "workers=2", "train.epochs=5000"], cwd=folder, env=environment(),
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (folder / "run/metrics.jsonl").exists():
        assert driver.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    os.killpg(driver.pid, signal.SIGINT)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130 and "Traceback" not in said, said
    assert said.strip().splitlines()[-1] == "hardtack: interrupted; repeat the command to resume"


def test_a_killed_process_of_a_training_is_named(home):
    folder = place(home, "killed")
    (folder / "dies.py").write_text(
        "import os, signal\nif os.environ.get('RANK') == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = hardtack("--import", "dies.py", "train", "../tiny.yaml", "workers=2", cwd=folder)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "process 1 of the training was killed by SIGKILL" in done.stderr.strip().splitlines()[-1]


def test_two_nodes_meet_at_a_rendezvous(home):
    folder, port = place(home, "nodes"), free_port()
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=7",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", "-m", "hardtack", "train",
        "../tiny.yaml",
    ]  # fmt: skip
    nodes = [
        subprocess.Popen(
            command, cwd=folder, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    told = [node.communicate(timeout=120) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], told
    assert sum(out.count("trained: run") for out, _ in told) == 1
    assert_same(home / "pair", folder)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--on", "torchrun"], "type: torchrun --nproc-per-node=4 -m hardtack train digits/trades"),
        (["workers=2", "--on", "torchrun"], "type: torchrun --nproc-per-node=2 -m hardtack train digits/trades"),
        (["workers=0"], "workers"),
        (["per_gpu=2"], "the processes of one training have a GPU each"),
        (["--dry-run"], "--dry-run prints the script of --on slurm"),
        (["workers=2", "--on", "slurm"], "takes slurm.nodes=N and slurm.gpus=N"),
        (["--on", "slurm", "slurm.node=2"], "did you mean 'nodes'"),
        (["slurm.nodes=2"], "a setting of --on slurm"),
        (["--on", "slurn"], "did you mean 'slurm'"),
        (["--on", "ray:127.0.0.1:1"], "no connection to the cluster 127.0.0.1:1"),
        (["--on", "ray", "train.epochz=2"], "did you mean 'train.epochs'"),
    ],
)
def test_wrong_words_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    if "ray" in "".join(words) and "epochz" not in "".join(words):
        pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits/trades", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
    assert not (tmp_path / "runs").exists()


def test_nodes_are_for_training(capsys):
    words = ["evaluate", "model=vit_digits", "data=digits", "suite=clean", "--on", "slurm", "slurm.nodes=2"]
    assert main(words) == 2
    assert "slurm.nodes is for train" in capsys.readouterr().err


def test_a_dry_run_shows_the_line_of_torchrun(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "digits/trades", "train.epochs=2", "--on", "slurm", "slurm.nodes=2", "slurm.gpus=4", "--dry-run"]
    monkeypatch.setattr("hardtack.commands.training_places.typed", words)
    assert main(words) == 0
    text = capsys.readouterr().out
    for part in ("#SBATCH --nodes=2", "#SBATCH --gres=gpu:4", "srun ", "--nnodes=2 --nproc-per-node=4",
                 "--rdzv-backend=c10d", "-m hardtack train digits/trades train.epochs=2 ;;"):  # fmt: skip
        assert part in text
    assert "slurm.nodes" not in text and "--on" not in text
    assert subprocess.run(["bash", "-n"], input=text.rpartition("\nsbatch")[0], text=True).returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_training_on_slurm(slurm, home):
    folder = place(home, "slurm")
    (home / "alone").mkdir()
    assert hardtack("train", "../tiny.yaml", cwd=home / "alone").returncode == 0
    done = hardtack("train", "../tiny.yaml", *SLURM, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "trained: run" in done.stdout and "submitted 1 task" in done.stderr
    assert_same(home / "alone", folder)
    again = hardtack("train", "../tiny.yaml", *SLURM, cwd=folder)
    assert again.returncode == 0 and "submitted" not in again.stderr and "trained: run" in again.stdout


def test_a_mistake_in_a_job_is_told_and_not_repeated(slurm, home):
    folder = place(home, "mistake")
    words = ["train", "../tiny.yaml", "data.name=npz:nowhere.npz", *SLURM]
    done = hardtack(*words, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "nowhere.npz" in done.stderr.splitlines()[-1] and done.stderr.count("submitted") == 1


@pytest.mark.slow
def test_a_job_that_is_stopped_goes_on_from_its_checkpoint(slurm, home):
    folder = place(home, "stopped")
    (folder / "slow.py").write_text(
        "import time\nfrom hardtack.training import Trainer\nstep = Trainer.step\n"
        "def slow(self, batch):\n    time.sleep(0.4)\n"
        "    print('step', self.progress.done, flush=True)\n    return step(self, batch)\nTrainer.step = slow\n"
    )
    words = ["--import", "slow.py", "train", "../tiny.yaml", "train.checkpoint_every_s=0", *SLURM]
    running = subprocess.Popen(
        [sys.executable, "-m", "hardtack", *words], cwd=folder, env=environment(), text=True, stderr=subprocess.PIPE
    )
    state = folder / "run/checkpoints/state.pt"
    while not state.exists() and running.poll() is None:
        pass
    jobs = slurm.ask("squeue", "--noheader", "--format=%A").split()
    slurm.ask("scancel", *jobs)
    _, told = running.communicate(timeout=90)
    assert running.returncode == 0, told
    assert "CANCELLED" in told and told.count("submitted 1 task") == 2
    log = next((folder / "run/.slurm").rglob("task-0.log")).read_text()
    steps = [int(line.split()[1]) for line in log.splitlines() if line.startswith("step ")]
    assert steps.count(0) == 1 and steps[-1] == max(steps), "the second job went on"
