"""Models of another precision, or that return no logits: a line that says so, not an error from inside the network."""

import types

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from tiny_runs import Linear, images, labels

CPU = {"runtime": Runtime(device="cpu"), "quiet": True}
X, Y = images(4), labels(4)
JOBS = {
    "attack": lambda model: ht.attack(model, X, Y, threat="linf:0.1"),
    "evaluate": lambda model: ht.evaluate(model, (X, Y), suite="clean", **CPU),
    "analyze": lambda model: ht.analyze(model, (X, Y), "landscape", points=3, dims=1, **CPU),
    "by name": lambda model: ht.evaluate(model=model, data=(X, Y), suite="clean", **CPU),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("dtype, said", [(torch.float64, "float64"), (torch.bfloat16, "bfloat16")])
def test_another_precision_is_named(job, dtype, said):
    with pytest.raises(UserError, match=f"weights of this model are {said}, but images are float32"):
        JOBS[job](Linear().to(dtype))


class Broken(Linear):
    def forward(self, x):
        raise RuntimeError("the wrong type of weather")


class Record(Linear):
    """As the models of Hugging Face's transformers return their logits."""

    def forward(self, x):
        return types.SimpleNamespace(logits=super().forward(x))


class Pair(Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("model, told", [(Record, "ht.wrap.* takes its logits"), (Pair, "found tuple; put a module")])
def test_a_model_that_returns_no_tensor(job, model, told):
    with pytest.raises(UserError, match=told):
        JOBS[job](model())
    if model is Record:
        JOBS[job](ht.wrap(model()))


class Casting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Linear().double()

    def forward(self, x):
        return self.inner(x.double())


def test_what_has_another_reason_keeps_it():
    with pytest.raises(UserError, match=r"cannot take images of 3×8×8 .RuntimeError: the wrong type of weather"):
        JOBS["evaluate"](Broken())
    assert JOBS["evaluate"](Casting()).clean_accuracy >= 0
