"""SAM and weights averaged over epochs under torchrun: two processes end where one does."""

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from test_two_processes import LAST

import hardtack as ht
from hardtack.results import read_metrics
from processes import ranks
from tiny_runs import MODEL, settings, write_data


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    base = tmp_path_factory.mktemp("sharp")
    write_data(base / "data.npz", train=40, test=8)
    model = {**MODEL, "options": {**MODEL["options"], "drop_path": 0.0}}  # masks are drawn per process
    values = settings(base / "run", base / "data.npz", model=model, output="run")
    values["optimiser"] = {"name": "sgd", "lr": 0.1, "layer_decay": 0.8}
    values["sharpness"] = {"name": "sam", "rho": 0.2}
    values["penalty"] = {"l1": 1e-3, "of": "mlp"}
    values["train"] = {"batch_size": 8, "accumulate": 2, "epochs": 2, "swa_from": 1, "log_every": 2}
    (base / "tiny.yaml").write_text(yaml.safe_dump(values))
    (base / "two").mkdir()
    ended = ranks("train", "../tiny.yaml", cwd=base / "two")
    assert [each.returncode for each in ended] == [0, 0], ended
    for name, words in (("one", {}), ("plain", {"sharpness.name": "none"})):
        ht.train(base / "tiny.yaml", quiet=True, output=str(base / name / "run"), **words)
    return base


def test_two_processes_train_the_same_weights(home):
    one, two, plain = (load_file(home / name / LAST) for name in ("one", "two", "plain"))
    assert one.keys() == two.keys()
    for name in one:
        assert np.allclose(one[name], two[name], atol=1e-5), name
    assert max(abs(one[name] - plain[name]).max() for name in one) > 1e-3, "SAM must have mattered"


def test_two_processes_report_the_same_sharpness(home):
    def told(name):
        return [line for line in read_metrics(home / name / "run") if line["kind"] == "train"]

    for mine, theirs in zip(told("one"), told("two"), strict=True):
        for part in ("sharpness", "penalty", "loss"):
            assert mine[part] == pytest.approx(theirs[part], abs=1e-4) and mine[part] > 0
