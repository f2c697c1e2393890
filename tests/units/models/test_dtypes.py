"""Models of another precision than the images: a line that says so, not an error from inside the network."""

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
