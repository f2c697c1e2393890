"""Gradients from a recorded graph against step by step, with a stand-in for CUDA graphs that recomputes on replay."""

import contextlib
import copy

import pytest
import torch
from torch import nn

from hardtack.base.config import choose
from hardtack.base.registry import objectives
from hardtack.base.runtime import Runtime
from hardtack.objectives.contract import Objective
from hardtack.training import loss_gradient
from hardtack.training.loss_gradient import LossGradient, RecordedLossGradient
from tiny_runs import Linear, images, labels


class Stream:
    def wait_stream(self, other):
        pass


class Graph:
    """Remembers the function; a replay writes to the memory that the recording has shown, as CUDA's does."""

    def __init__(self, function, objective, leaves):
        self.function, self.parameters, self.replays = function, [*objective.parameters()], 0
        kept = copy.deepcopy([*objective.buffers()])
        self.parts = function()
        self.static = [parameter.grad for parameter in self.parameters]
        for buffer, value in zip(objective.buffers(), kept, strict=True):
            buffer.copy_(value)  # recording computes nothing
        self.leaves = leaves

    def replay(self):
        self.replays += 1
        given = [parameter.grad for parameter in self.parameters]
        for leaf in (*self.parameters, *self.leaves()):
            leaf.grad = None
        for name, value in self.function().items():
            self.parts[name].copy_(value)
        for parameter, static, before in zip(self.parameters, self.static, given, strict=True):
            if static is not None:
                static.copy_(parameter.grad)
            parameter.grad = before


@pytest.fixture
def recorded(monkeypatch):
    """Makes a RecordedLossGradient that works without a GPU."""
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    graphs = []

    def make(objective, accumulate=1, refuses=False):
        gradient = RecordedLossGradient(objective, Runtime(device="cpu"), accumulate=accumulate)

        def record(function, *, stream):
            if refuses:
                return None, None
            leaves = lambda: [value for value in gradient._inputs.values() if value.requires_grad]  # noqa: E731
            graphs.append(Graph(function, objective, leaves))
            return graphs[-1], graphs[-1].parts

        monkeypatch.setattr(loss_gradient, "record", record)
        return gradient, graphs

    return make


class Normed(nn.Module):
    """With running statistics, which must see every batch once."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm2d(3), Linear()

    def forward(self, x):
        return self.linear(self.norm(x))


def steps(objective, gradient, count=7, accumulate=1):
    """Losses and gradients of some updates by plain descent."""
    optimiser, losses = torch.optim.SGD(objective.parameters(), lr=0.1), []
    for step in range(count):
        for part in range(accumulate):
            x, y = images(seed=10 * step + part), labels()
            prepared = objective.prepare(x, y, epoch=1.0)
            parts = gradient(x, y, prepared, last=part == accumulate - 1)
            losses.append(float(parts["loss"].detach()))
        optimiser.step()
        objective.finish_step()
        objective.zero_grad(set_to_none=True)
    return losses, copy.deepcopy(objective.state_dict())


ATTACK = {"name": "pgd", "threat": "linf:0.1", "steps": 2}
CASES = {
    "standard": {},
    "adversarial": {"attack": ATTACK},
    "trades": {"attack": ATTACK, "separate_statistics": "clean"},
    "free": {"replays": 1},
}


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_replays_lead_where_single_steps_do(recorded, name, accumulate):
    config, found = choose(objectives, {"name": name, **CASES[name]}), []
    for is_recorded in (False, True):
        torch.manual_seed(0)
        objective = config.build(Normed().train())
        if is_recorded:
            gradient, graphs = recorded(objective, accumulate)
        else:
            gradient = LossGradient(objective, Runtime(device="cpu"), accumulate=accumulate)
        found.append(steps(objective, gradient, accumulate=accumulate))
    (plain, slow), (fast, quick) = found
    assert graphs[0].replays == 7 * accumulate - 3
    assert fast == pytest.approx(plain, rel=1e-5)
    for key, value in slow.items():
        if isinstance(value, torch.Tensor):
            assert torch.allclose(quick[key].float(), value.float(), atol=1e-5), key


def test_other_shapes_and_refused_recordings_run_step_by_step(recorded):
    objective = choose(objectives, {"name": "standard"}).build(Linear())
    gradient, graphs = recorded(objective)
    steps(objective, gradient, 5)
    replays = graphs[0].replays
    parts = gradient(images()[:2], labels()[:2], {}, last=True)
    assert graphs[0].replays == replays and torch.isfinite(parts["loss"])
    gradient, graphs = recorded(choose(objectives, {"name": "standard"}).build(Linear()), refuses=True)
    count = len(graphs)
    losses, _ = steps(gradient.objective, gradient, 6)
    assert len(graphs) == count and len(losses) == 6


class Own(Objective):
    """A user's: its weight is an attribute."""

    weight, counts = 1.0, False

    def __init__(self):
        super().__init__(Linear(), None)
        self.weight, self.step = 1.0, 0

    def forward(self, x, y):
        self.step += self.counts
        return {"loss": self.weight * nn.functional.cross_entropy(self.model(x), y)}


def test_an_objective_that_counts_is_not_recorded(recorded):
    objective = Own()
    objective.counts = True
    gradient, graphs = recorded(objective)
    with pytest.warns(UserWarning, match="not recorded"):
        steps(objective, gradient, 6)
    assert not graphs and objective.step == 6


def test_a_weight_that_is_changed_between_steps_counts(recorded):
    objective = Own()
    gradient, graphs = recorded(objective)
    steps(objective, gradient, 5)
    loss = float(gradient(images(), labels(), {}, last=True)["loss"].detach())
    objective.weight = 3.0
    assert float(gradient(images(), labels(), {}, last=True)["loss"].detach()) == pytest.approx(3 * loss, rel=1e-5)
    assert graphs[0].replays == 3
