"""Under torchrun, two processes on the CPU train and measure what one would."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.numpy import load_file

from hardtack.models import load_model
from hardtack.results import read_metrics, read_results
from processes import hardtack, ranks, torchrun
from tiny_runs import MODEL, settings, write_data

LAST = "run/checkpoints/last.safetensors"
SIGNALS = """
import os, signal
from hardtack.training import Trainer

step = Trainer.step


def signalled(self, batch):
    parts = step(self, batch)
    if self.progress.done == 4 - self.runtime.rank:  # the second process hears of it a step before the first
        os.kill(os.getpid(), signal.SIGTERM)
    return parts


Trainer.step = signalled
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    base = tmp_path_factory.mktemp("two")
    write_data(base / "data.npz", train=60, test=20)
    # drop path draws other masks on another number of processes; everything else must not notice
    model = {**MODEL, "options": {**MODEL["options"], "drop_path": 0.0}}
    values = settings(base / "run", base / "data.npz", model=model, output="run")
    # … and AdamW would blow up rounding where a gradient is zero by nature (the bias of attention's keys)
    values["optimiser"] = {"name": "sgd", "lr": 0.1}
    values["train"] |= {"batch_size": 8, "accumulate": 2, "epochs": 2, "checkpoint_every_s": 0.0}
    values["validation"] = {"batch_size": 3}  # several chunks: a process must not judge by its share alone
    (base / "tiny.yaml").write_text(yaml.safe_dump(values))
    (base / "one").mkdir()
    (base / "two").mkdir()
    done = hardtack("train", "../tiny.yaml", cwd=base / "one")
    assert done.returncode == 0, done.stderr
    return base


@pytest.fixture(scope="module")
def trained(home):
    """By torchrun itself; the other tests start the same ranks without its seconds of imports."""
    done = torchrun("train", "../tiny.yaml", cwd=home / "two")
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def together(*words, cwd):
    """What the first of two processes printed; the second prints nothing."""
    first, second = ranks(*words, cwd=cwd)
    assert first.returncode == second.returncode == 0, (first.stderr + second.stderr)[-3000:]
    assert second.stdout == ""
    return first.stdout


def test_two_processes_train_the_same_weights(home, trained):
    one, two = (load_file(home / name / LAST) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        assert np.allclose(one[name], two[name], atol=1e-5), name


def test_the_training_that_is_compared_moved_the_weights(home):
    model = load_model("vit_digits", num_classes=4, seed=3, image_size=8, **MODEL["options"])
    trained = load_file(home / "one" / LAST)
    moved = [abs(trained[name] - value.numpy()).max() for name, value in model.state_dict().items()]
    assert max(moved) > 1e-2


def test_two_processes_judge_on_the_whole_validation_split(home, trained):
    def judged(name):
        return [line for line in read_metrics(home / name / "run") if line["kind"] == "validation"]

    assert len(judged("one")) == 2 and judged("two") == judged("one")


def test_a_signal_saves_what_both_have_computed(home):
    (home / "ended").mkdir()
    (home / "ended" / "signals.py").write_text(SIGNALS)
    words = ["--import", "signals.py", "train", "../tiny.yaml", "train.checkpoint_every_s=3600"]
    ended = ranks(*words, cwd=home / "ended")
    assert [each.returncode for each in ended] == [143, 143], ended
    assert torch.load(home / "ended/run/checkpoints/state.pt", weights_only=True)["done"] == 4


def test_one_process_speaks(trained):
    assert trained.stdout.count("trained: run") == 1


def test_two_processes_measure_what_one_measures(home):
    words = ["threat=linf:0.05", "batch_size=3", "chunk_size=3", "attack.steps=4", "examples=5"]
    printed = together("evaluate", "run", "suite=pgd,sweep", *words, "output=both", cwd=home / "one")
    alone = hardtack("evaluate", "run", "suite=pgd,sweep", *words, "output=alone", cwd=home / "one")
    assert alone.returncode == 0, alone.stderr
    assert printed.count("clean accuracy") == 2, "each suite is printed once"
    assert printed == alone.stdout
    ours, theirs = (read_results(home / "one" / name) for name in ("both", "alone"))
    assert [(r.evaluation, r.value, r.n, r.threat) for r in ours] == [
        (r.evaluation, r.value, r.n, r.threat) for r in theirs
    ]
    assert len(ours) == 2 + 9 and all(r.n == 20 for r in ours)
    for result in ours:
        tables = [pq.read_table(home / "one" / name / result.verdicts) for name in ("both", "alone")]
        sizes = [table["size"].to_numpy() for table in tables]  # NaN where nothing was attacked
        assert np.array_equal(*sizes, equal_nan=True)
        tables = [table.drop_columns("size") for table in tables]
        assert tables[0].equals(tables[1]), "same rows, same order"


def test_two_processes_attack_with_the_results_of_one(home):
    """Each process has its own pool and its own chunk; no verdict depends on which images share a batch."""
    words = ["suite=autoattack", "tier=fast", "threat=linf:0.05", "union=[l2:0.4]", "examples=5", "batch_size=10"]
    printed = together("evaluate", "run", *words, "output=together", cwd=home / "one")
    alone = hardtack("evaluate", "run", *words, "output=apart", cwd=home / "one")
    assert alone.returncode == 0, alone.stderr
    assert printed == alone.stdout and printed.count("worst case accuracy") == 1
    ours, theirs = (read_results(home / "one" / name) for name in ("together", "apart"))
    assert [(r.evaluation, r.metric, r.value, r.threat) for r in ours] == [
        (r.evaluation, r.metric, r.value, r.threat) for r in theirs
    ]
    assert 0 < ours[-1].value < ours[0].value, "some images are broken and some remain correct"
    tables = [pq.read_table(home / "one" / name / ours[0].verdicts).to_pydict() for name in ("together", "apart")]
    for column in ("index", "robust", "robust@linf:0.05", "robust@l2:0.4", "broken_by", "broken_at_step", "target"):
        assert tables[0][column] == tables[1][column], column
    assert len(list((home / "one" / "together" / "adversarial" / ours[0].evaluation).glob("*.npz"))) == 2
