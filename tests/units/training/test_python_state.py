"""State outside of tensors, which a CUDA graph would freeze, is noticed."""

import random

import numpy as np
import pytest
from torch import nn

from hardtack.base.config import choose
from hardtack.base.registry import objectives
from hardtack.objectives.contract import Objective
from hardtack.training.python_state import own_state, whole_state
from tiny_runs import Linear, images, labels


class Own(Objective):
    """An objective as a user writes one."""

    def __init__(self, kind):
        super().__init__(Linear(), None)
        self.kind, self.steps = kind, 0
        self.inner = nn.Identity()
        self.inner.factor = 1.0

    def forward(self, x, y):
        if self.kind == "counts":
            self.steps += 1
        elif self.kind == "inside":
            self.inner.factor *= 0.5
        elif self.kind == "random":
            random.random()
        elif self.kind == "numpy":
            np.random.rand()  # noqa: NPY002
        elif self.kind == "model":
            self.model.passes = getattr(self.model, "passes", 0) + 1
        return {"loss": nn.functional.cross_entropy(self.model(x), y)}


@pytest.mark.parametrize("kind", ["counts", "inside", "random", "numpy", "model"])
def test_a_pass_that_changes_something_is_seen(kind):
    objective = Own(kind)
    before = whole_state(objective)
    objective(images(), labels())
    assert whole_state(objective) != before


def test_a_pass_over_tensors_changes_nothing():
    objective = Own("pure")
    before = whole_state(objective), own_state(objective)
    objective(images(), labels())
    objective.eval()  # modes are switched around attacks and put back
    assert (whole_state(objective), own_state(objective)) == before


def test_a_schedule_that_the_user_moves_between_steps_is_seen():
    objective = Own("pure")
    before = own_state(objective)
    objective.inner.factor = 0.1
    assert own_state(objective) != before


@pytest.mark.parametrize("name", ["standard", "adversarial", "trades", "mart", "alp", "free"])
def test_our_objectives_can_be_recorded(name):
    """Nothing but tensors changes in a step of theirs; `free` moves its radius outside of `forward`."""
    objective = choose(objectives, {"name": name}).build(Linear())
    x, y = images(), labels()
    for epoch in (1.0, 2.0):
        prepared = objective.prepare(x, y, epoch=epoch)
        before = whole_state(objective)
        objective(x, y, **prepared)["loss"].backward()
        assert whole_state(objective) == before
        objective.finish_step()
    assert own_state(objective) == ()
