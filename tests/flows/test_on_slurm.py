"""`--on slurm` on a real Slurm cluster of one node: equal verdicts and tables, a killed task, a changed file."""

import json
import threading
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from hostile_pieces import NET as PLAIN
from hostile_pieces import plant
from same_results import check_equal
from stopped_command import AT, blocking, kill, said, wait_for

from processes import hardtack

__all__ = ["blocking"]  # a fixture
pytest_plugins = ("slurm_cluster",)

NET = """
import time
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.GELU(),
                                          torch.nn.Linear(16, 10))
    def forward(self, x):
        return 3 * self.layers(torch.nn.functional.avg_pool2d(x, x.shape[-1] // 8))

def build(num_classes):
    return Net()
"""
SLURM = ["--on", "slurm", "slurm.gpus=0", "slurm.hours=0.1", "slurm.poll_s=0.2"]


@pytest.fixture
def words(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return [
        "evaluate", "model=net.py:build", "data=digits", "n=16", "suite=pgd", "threat=linf:0.1", "attack.steps=4",
        "batch_size=4", "runtime.device=cpu",
    ]  # fmt: skip


def table(folder):
    return pq.read_table(next((folder / "verdicts").glob("*.parquet")))


def check_equal_verdicts(*folders):
    tables = [table(folder) for folder in folders]
    for name in tables[0].column_names:
        first, second = (each[name].to_numpy() for each in tables)
        assert np.array_equal(first, second, equal_nan=first.dtype.kind == "f"), name


def test_an_evaluation_has_the_same_verdicts(slurm, tmp_path, words):
    assert hardtack(*words, "output=alone", cwd=tmp_path).returncode == 0
    done = hardtack(*words, "output=cluster", "workers=2", *SLURM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "robust accuracy" in done.stdout
    check_equal_verdicts(tmp_path / "alone", tmp_path / "cluster")
    assert not list((tmp_path / "cluster").rglob("*.pkl")), "nothing is pickled"


def test_dry_run_prints_the_script_and_submits_nothing(slurm, tmp_path, words):
    done = hardtack(*words, "output=dry", *SLURM, "slurm.partition=main", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "#SBATCH" in done.stdout and "--partition=main" in done.stdout.replace(" ", "=").replace("==", "=")
    assert "net.py:build" in done.stdout and "--on" not in done.stdout
    assert done.stdout.startswith("# the first array of this command")
    assert not list((tmp_path / "dry").rglob("tasks.json"))


@pytest.mark.slow
def test_a_cancelled_task_is_submitted_again(slurm, tmp_path, words):
    (tmp_path / "net.py").write_text(NET.replace("return 3", "time.sleep(0.1)\n        return 3"))
    stop = threading.Event()
    cancelled = []

    def cancel():
        while not cancelled and not stop.wait(0.2):
            running = slurm.ask("squeue", "-h", "-t", "R", "-o", "%F_%K").split()
            if running:
                time.sleep(1.0)
                slurm.ask("scancel", running[0])
                cancelled.append(running[0])

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        done = hardtack(*words, "output=cluster", "workers=2", *SLURM, "audit=0", cwd=tmp_path)
    finally:
        stop.set()
        thread.join()
    assert done.returncode == 0, done.stderr
    assert cancelled and len(table(tmp_path / "cluster")) == 16


def test_a_task_with_a_changed_file_is_refused(slurm, tmp_path, words):
    done = hardtack(*words, "output=run", "workers=1", *SLURM, "slurm.setup=echo '#' >> net.py", cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "net.py is another file here than where the job was submitted: " in last and " there. It was" in last


def test_analyses_and_corrupted_copies_are_equal_to_the_bit(slurm, tmp_path):
    check_equal(tmp_path, *SLURM, "workers=2")


def test_nothing_in_a_run_folder_is_unpickled(slurm, tmp_path, words):
    """A whole piece is computed again where its report is damaged: its flags would be lost."""
    (tmp_path / "net.py").write_text(PLAIN)
    assert hardtack(*words, "output=alone", "audit=0", cwd=tmp_path).returncode == 0
    plant(tmp_path / "run", tmp_path / "alone", tmp_path / "ran")
    done = hardtack(*words, "output=run", "audit=0", *SLURM, "workers=2", cwd=tmp_path)
    assert not (tmp_path / "ran").exists() and done.returncode == 0, done.stderr
    named = [line for line in done.stderr.splitlines() if "00000008-00000012.json is damaged" in line]
    assert len(named) == 1 and named[0].endswith("its rows are computed again")
    check_equal_verdicts(tmp_path / "alone", tmp_path / "run")


def test_a_killed_driver_watches_its_array_again_when_repeated(slurm, blocking):
    more = ("workers=2", *SLURM)
    first = blocking.start("run", *more)
    behind = len(blocking.names[AT::2])  # a task has every second piece: that which waits, and those after it
    wait_for(lambda: len(blocking.pieces("run")) == len(blocking.names) - behind)
    wait_for((blocking.folder / "waits").exists)
    kill(first)
    second = blocking.start("run", *more)
    wait_for(lambda: "of an earlier call in the queue; watching on" in said(second) or not second.running())
    blocking.go()
    ended = second.wait()
    assert ended.returncode == 0, ended.stderr
    assert "submitted" not in ended.stderr
    assert set(blocking.computed().values()) == {1}, "every piece was computed once"
    assert blocking.start("alone").wait().returncode == 0
    assert blocking.verdicts("run") == blocking.verdicts("alone")


def test_a_red_flag_of_a_task_is_told_though_the_driver_ended_first(tmp_path, words):
    """All pieces are finished, so that Slurm is not asked any more."""
    assert hardtack(*words, "output=alone", "audit=0", cwd=tmp_path).returncode == 0
    verdicts = next((tmp_path / "alone" / "verdicts").glob("*.parquet"))
    home = tmp_path / "run" / "verdicts" / f".{verdicts.stem}"
    reports = home / "scratch" / "slurm" / "wave-0"
    reports.mkdir(parents=True)
    for start in range(0, 16, 4):
        pq.write_table(pq.read_table(verdicts).slice(start, 4), home / f"{start:08d}-{start + 4:08d}.parquet")
    flag = {"level": "red", "code": "of_a_task", "message": "two answers differ"}
    report = {"flags": [flag], "process": "a task", "precision": "tf32", "seconds": {}}
    (reports / "00000004-00000008.json").write_text(json.dumps(report))
    done = hardtack(*words, "output=run", "audit=0", *SLURM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "RED FLAG of_a_task: two answers differ" in done.stdout
    assert "tf32 search" in (tmp_path / "run" / "results.jsonl").read_text()


def test_a_study_has_the_same_table(slurm, tmp_path):
    study = ["study", "architectures/table2", "rows=cccc", "data.limit=32", "train.epochs=1", "train.batch_size=16"]
    study += ["validation.every=1", "validation.limit=4", "n=4", "runtime.device=cpu"]
    assert hardtack(*study, "output=alone", cwd=tmp_path).returncode == 0
    done = hardtack(*study, "output=cluster", *SLURM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tables = [
        (tmp_path / name / "architectures" / "table2" / "smoke" / "table.csv").read_text()
        for name in ("alone", "cluster")
    ]
    assert tables[0] == tables[1]
