"""A training that compiles nothing does not wait for the compiler's import."""

import copy
import subprocess
import sys

import pytest
import torch

from hardtack.training.optimise import OptimiserConfig, take_step

TRAIN = """
import sys
from hardtack.commands.train import train
words = {"train.epochs": 1, "train.batch_size": 600, "sharpness": "sam", "data.validation": 0, "output": sys.argv[1]}
train("digits/trades", quiet=True, **words)
loaded = {"torch._dynamo", "torch._inductor", "timm", "sympy"} & set(sys.modules)
assert not loaded, loaded
"""


def test_training_imports_no_compiler(tmp_path):
    done = subprocess.run([sys.executable, "-c", TRAIN, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_step_is_that_of_the_optimiser(name):
    ours = torch.nn.Linear(4, 3)
    theirs = copy.deepcopy(ours)
    mine, other = (OptimiserConfig(name=name, lr=0.1).build(each) for each in (ours, theirs))
    for seed in range(3):
        for model in (ours, theirs):
            model.zero_grad()
            model(torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
        take_step(mine)
        other.step()
    assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)
    assert mine.state_dict()["state"].keys() == other.state_dict()["state"].keys()
    assert torch.is_grad_enabled()
