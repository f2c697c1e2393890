"""One process of a launch dies: the others end soon, with a sentence, and a repeat goes on to the same result."""

import time

import pytest
import yaml
from safetensors.numpy import load_file

from hardtack.results import read_metrics, read_results
from processes import ranks
from tiny_runs import MODEL, settings, write_data

DIES_IN_EVALUATION = """
import os, signal
from hardtack.evaluation.suite import SuiteJob

run = SuiteJob.run


def dies(self, span, inputs, **named):
    if self.runtime.rank == {rank} and span.start >= 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, span, inputs, **named)


SuiteJob.run = dies
"""
DIES_IN_TRAINING = """
import os, signal
from hardtack.training import Trainer

step = Trainer.step


def dies(self, batch):
    if self.runtime.rank == {rank} and self.progress.done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, batch)


Trainer.step = dies
"""
EVALUATE = (
    "evaluate", "model=vit_digits", "model.image_size=8", "data=npz:data.npz", "attack.steps=3", "chunk_size=4",
    "batch_size=4",
)  # fmt: skip


@pytest.fixture
def home(tmp_path):
    write_data(tmp_path / "data.npz", train=40, test=24)
    return tmp_path


def check_sentence(ended, dead):
    assert ended[dead].returncode == -9
    other = ended[1 - dead]
    assert other.returncode in (2, 143), other.stderr
    last = other.stderr.strip().splitlines()[-1]
    assert "another process of" in last and "repeat the command to continue" in last, other.stderr
    assert "Traceback" not in other.stderr and "fault of hardtack" not in other.stderr


@pytest.mark.parametrize("dead", [0, 1])
def test_an_evaluation_ends_with_a_sentence_and_goes_on(home, dead):
    (home / "dies.py").write_text(DIES_IN_EVALUATION.format(rank=dead))
    began = time.monotonic()
    ended = ranks("--import", "dies.py", *EVALUATE, "output=run", cwd=home)
    assert time.monotonic() - began < 60
    check_sentence(ended, dead)
    pieces = list((home / "run" / "verdicts").glob(".*/*.parquet"))
    assert pieces, "what was finished is on disk"
    again = ranks(*EVALUATE, "output=run", cwd=home)
    assert [each.returncode for each in again] == [0, 0], again[0].stderr + again[1].stderr
    whole = ranks(*EVALUATE, "output=whole", cwd=home)
    assert whole[0].returncode == 0
    own, other = (read_results(home / run) for run in ("run", "whole"))
    assert [(r.metric, r.value, r.n) for r in own] == [(r.metric, r.value, r.n) for r in other]
    assert not list((home / "run" / "verdicts").glob(".*"))


@pytest.mark.parametrize("dead", [0, 1])
def test_training_ends_with_a_sentence_and_goes_on(home, dead):
    values = settings(home / "run", home / "data.npz", model=MODEL, output="run")
    values["train"] |= {"batch_size": 8, "epochs": 2, "checkpoint_every_s": 0.0, "log_every": 1}
    (home / "tiny.yaml").write_text(yaml.safe_dump(values))
    (home / "dies.py").write_text(DIES_IN_TRAINING.format(rank=dead))
    ended = ranks("--import", "dies.py", "train", "tiny.yaml", cwd=home)
    check_sentence(ended, dead)
    again = ranks("train", "tiny.yaml", cwd=home)
    assert [each.returncode for each in again] == [0, 0], again[0].stderr + again[1].stderr
    whole = ranks("train", "tiny.yaml", "output=whole", cwd=home)
    assert whole[0].returncode == 0
    steps = [row["step"] for row in read_metrics(home / "run") if row["kind"] == "train"]
    assert steps == list(range(1, len(steps) + 1))
    own, other = (load_file(home / run / "checkpoints" / "last.safetensors") for run in ("run", "whole"))
    assert all((own[key] == other[key]).all() for key in other)
