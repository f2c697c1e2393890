"""A full disk during training and evaluation: one clear line, the last good checkpoint stays, a repeat goes on.

The limit on the size of a file, which a process can set for itself, stands for the full disk.
"""

import pytest
import yaml
from safetensors.numpy import load_file

from hardtack.results import read_metrics
from processes import hardtack
from tiny_runs import settings, write_data

LIMIT = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import hardtack.training.trainer as module

step = module.Trainer.step

def limited(self, batch):
    parts = step(self, batch)
    if self.progress.done == {step}:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
    return parts

module.Trainer.step = limited
"""


@pytest.fixture
def home(tmp_path):
    write_data(tmp_path / "data.npz", train=60, test=8)
    values = settings(tmp_path / "run", tmp_path / "data.npz", output="run")
    values["train"] |= {"batch_size": 6, "accumulate": 1, "checkpoint_every_s": 0.0, "log_every": 1, "epochs": 2}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    return tmp_path


@pytest.mark.parametrize("size, file", [(4096, "checkpoints"), (1500, "metrics.jsonl")])
def test_a_full_disk_stops_training_with_a_line_and_a_repeat_goes_on(home, size, file):
    (home / "limit.py").write_text(LIMIT.format(step=8, size=size))
    stopped = hardtack("--import", "limit.py", "train", "tiny.yaml", cwd=home)
    assert stopped.returncode == 2, stopped.stderr
    line = stopped.stderr.strip().splitlines()[-1]
    assert "no space is left on the disk" in line and "repeat the command" in line
    assert file in line and "fault of hardtack" not in stopped.stderr
    assert not list((home / "run").rglob(".*.part")), "no half-written file is left"
    done = hardtack("train", "tiny.yaml", cwd=home)
    assert done.returncode == 0, done.stderr
    steps = [row["step"] for row in read_metrics(home / "run") if row["kind"] == "train"]
    assert steps == list(range(1, len(steps) + 1)), "every step is logged once"
    whole = hardtack("train", "tiny.yaml", "output=whole", cwd=home)
    assert whole.returncode == 0
    for name in ("best", "last"):
        own, other = (load_file(home / run / "checkpoints" / f"{name}.safetensors") for run in ("run", "whole"))
        assert all((own[key] == other[key]).all() for key in other), "as without an interruption"


def test_a_full_disk_during_an_evaluation_is_a_line(home):
    (home / "limit.py").write_text(
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))\n"
    )
    words = ("evaluate", "model=vit_digits", "model.image_size=8", "data=npz:data.npz", "attack.steps=2", "output=run")
    stopped = hardtack("--import", "limit.py", *words, cwd=home)
    assert stopped.returncode == 2 and "no space is left on the disk" in stopped.stderr
    assert hardtack(*words, cwd=home).returncode == 0
