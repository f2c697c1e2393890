"""runtime.shard under torchrun: weights split over two processes, crashed and continued, end where one process does."""

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from test_two_processes import LAST

import hardtack as ht
from hardtack.results import read_metrics
from processes import ranks
from tiny_runs import MODEL, settings, write_data

CRASH = """
from hardtack.training import Trainer

step = Trainer.step


def failing(self, batch):
    assert all(hasattr(p, "placements") for p in self.parameters), "what is trained is split"
    if self.progress.done == 3:
        raise RuntimeError("as planned")
    return step(self, batch)


Trainer.step = failing
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    base = tmp_path_factory.mktemp("shards")
    write_data(base / "data.npz", train=40, test=8)
    model = {**MODEL, "options": {**MODEL["options"], "drop_path": 0.0}}  # masks are drawn per process
    values = settings(base / "run", base / "data.npz", model=model, output="run")
    values["optimiser"] = {"name": "sgd", "lr": 0.1, "layer_decay": 0.8}
    values["sharpness"] = {"name": "sam", "rho": 0.1}
    values["penalty"] = {"l1": 1e-3, "of": "mlp"}
    values["objective"] = {"name": "adversarial", "attack": {"name": "fgsm", "threat": "linf:0.05"}}
    values["validation"] = {"attack": {"name": "fgsm", "threat": "linf:0.05"}}
    values["train"] = {"batch_size": 8, "accumulate": 2, "epochs": 2, "ema": 0.8, "clip": 1.0, "log_every": 2,
                       "checkpoint_every_s": 0.0}  # fmt: skip
    (base / "tiny.yaml").write_text(yaml.safe_dump(values))
    (base / "crash.py").write_text(CRASH)
    (base / "two").mkdir()
    ht.train(base / "tiny.yaml", quiet=True, output=str(base / "one" / "run"))
    return base


@pytest.fixture(scope="module")
def crashed(home):
    """Killed in the first of two epochs of four steps, after the state of step 2 was saved."""
    ended = ranks("--import", "../crash.py", "train", "../tiny.yaml", "runtime.shard=true", cwd=home / "two")
    assert all(each.returncode and "as planned" in each.stderr for each in ended), ended
    state = torch.load(home / "two/run/checkpoints/state.pt", weights_only=True)
    assert state["done"] == 2 and all(type(value) is torch.Tensor for value in state["objective"].values())


def test_a_split_model_ends_where_a_whole_one_does(home, crashed):
    ended = ranks("train", "../tiny.yaml", "runtime.shard=true", cwd=home / "two")
    assert [each.returncode for each in ended] == [0, 0], ended
    one, two = (load_file(home / name / LAST) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].shape == two[name].shape and np.allclose(one[name], two[name], atol=1e-5), name
    states = [torch.load(home / name / "run/checkpoints/state.pt", weights_only=True) for name in ("one", "two")]
    for key in ("objective", "optimiser"):
        assert states[0][key].keys() == states[1][key].keys()
    moments = [state["optimiser"]["state"] for state in states]
    for number in moments[0]:
        a, b = (each[number]["momentum_buffer"] for each in moments)
        assert torch.allclose(a, b, atol=1e-4), number
    judged = [[line for line in read_metrics(home / name / "run") if line["kind"] == "validation"] for name in
              ("one", "two")]  # fmt: skip
    assert judged[0] == judged[1] and len(judged[0]) == 2


def test_one_process_has_nothing_to_split(tmp_path, home):
    words = {"train.epochs": 1, "runtime.shard": True}
    ht.train(home / "tiny.yaml", quiet=True, output=str(tmp_path / "run"), **words)
    assert (tmp_path / "run/checkpoints/last.safetensors").exists()
