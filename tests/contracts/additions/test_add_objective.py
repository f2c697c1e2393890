"""An objective of the user's is one file: named with `--import`, it is listed, trains, and its run is evaluated."""

import json

import pytest

from hardtack.base.config import read_yaml
from hardtack.base.registry import objectives
from hardtack.commands.cli import main

SOURCE = """
from dataclasses import dataclass

import torch.nn.functional as F

from hardtack.base.registry import objectives
from hardtack.objectives import Objective, ObjectiveConfig


@objectives.register("focal_test", help="less weight for easy images")
@dataclass(frozen=True, kw_only=True)
class FocalConfig(ObjectiveConfig):
    gamma: float = 2.0

    def build(self, model):
        return Focal(model, self)


class Focal(Objective):
    def forward(self, x, y):
        loss = F.cross_entropy(self.model(x), y, reduction="none")
        weight = (1 - (-loss).exp()) ** self.config.gamma
        return {"loss": (weight * loss).mean(), "natural_loss": loss.mean().detach()}
"""
TINY = [
    "data=digits",
    "data.limit=64",
    "model=vit_digits",
    "train.epochs=1",
    "train.batch_size=16",
    "validation.limit=8",
]


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "my_objective.py"
    file.write_text(SOURCE)
    yield str(file)
    objectives._entries.pop("focal_test", None)


def test_it_trains_like_a_built_in_one(plugin, tmp_path, capsys):
    run = tmp_path / "run"
    words = ["objective=focal_test", "objective.gamma=0", "train.log_every=1", f"output={run}", *TINY]
    assert main(["train", *words, "--import", plugin]) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    # with gamma 0 the loss is plain cross-entropy
    assert len(steps) == 4 and all(line["loss"] == pytest.approx(line["natural_loss"]) for line in steps)
    assert read_yaml(run / "config.yaml")["objective"] == {"name": "focal_test", "gamma": 0.0}
    capsys.readouterr()
    assert main(["train", *words, "--import", plugin]) == 0
    assert "already finished" in capsys.readouterr().err, "its state is saved, and the run is continued"
    assert main(["evaluate", str(run), "suite=clean", "n=8", "--import", plugin]) == 0
    assert "clean accuracy" in capsys.readouterr().out


def test_it_is_listed_and_its_mistakes_are_named(plugin, tmp_path, capsys):
    assert main(["list", "objectives", "--import", plugin]) == 0
    text = capsys.readouterr().out
    assert "focal_test" in text and "less weight for easy images" in text
    words = ["objective=focal_test", "objective.gama=1", f"output={tmp_path / 'run'}", *TINY]
    assert main(["train", *words, "--import", plugin]) == 2
    assert "unknown key 'objective.gama' (did you mean 'objective.gamma'?)" in capsys.readouterr().err


def test_without_its_file_there_is_no_such_objective(tmp_path, capsys):
    assert main(["train", "objective=focal_test", f"output={tmp_path / 'run'}", *TINY]) == 2
    assert "there is no objective 'focal_test'" in capsys.readouterr().err
