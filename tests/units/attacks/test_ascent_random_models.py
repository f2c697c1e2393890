"""Attacks on models that are random themselves: with eot passes the ascent climbs the mean model."""

import pytest
import torch
from linear_models import Linear, best_gain, gain, images, labels
from torch import nn

from hardtack.attacks import Ascent, ascent_step
from hardtack.base.errors import UserError

X, Y = images("active box"), labels()


class Cycle(nn.Module):
    """One of several linear models at each pass, in turn: four passes in a row average to the mean model exactly."""

    def __init__(self, count=4, noise=3.0):
        super().__init__()
        self.parts = nn.ModuleList(Linear(seed=0) for _ in range(count))
        generator = torch.Generator().manual_seed(5)
        for part, opposite in zip(self.parts[::2], self.parts[1::2], strict=True):
            away = noise * torch.randn(part.head.weight.shape, generator=generator)
            part.head.weight.data += away
            opposite.head.weight.data -= away
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        return self.parts[self.passes % len(self.parts)](x)


MEAN = Linear(seed=0)


def share(attack):
    """How much of the mean model's largest rise an attack on the random one achieves: the worst of 16 images."""
    slope = MEAN.slope(Y)
    return (gain(slope, X, attack(Cycle(), X, Y)) / best_gain(slope, X, 0.1, "linf")).min().item()


def test_the_mean_model_is_climbed():
    settings = {"threat": "linf:0.1", "loss": "margin", "steps": 4, "start": "clean", "keep": "last"}
    assert share(Ascent(eot=4, **settings)) > 1 - 1e-4
    assert share(Ascent(eot=1, **settings)) < 0.6, "the mutant this test is for"


@pytest.mark.parametrize("keep", ["best", "last"])
def test_success_is_judged_on_the_mean_logits(keep):
    attack = Ascent(threat="linf:0.02", loss="margin", start="clean", steps=3, eot=4, keep=keep)
    found = attack.run(Cycle(), X, Y)
    assert torch.equal(found.fooled, MEAN(found.x_adv).argmax(1) != Y)
    assert found.fooled.any() and not found.fooled.all()
    one_draw = Cycle()(found.x_adv).argmax(1) != Y
    assert not torch.equal(found.fooled, one_draw), "one draw tells something else"


def test_the_mean_of_losses_is_reported():
    model = Cycle()
    found = Ascent(threat="linf:0.02", start="clean", eot=4).run(model, X, Y)
    losses = [nn.functional.cross_entropy(part(X), Y, reduction="none") for part in model.parts]
    assert torch.allclose(found.first_loss, torch.stack(losses).mean(0), atol=1e-5)


def test_passes_are_counted():
    model = Cycle()
    Ascent(threat="linf:0.1", steps=3, restarts=2, eot=5).run(model, X, Y)
    assert model.passes == 2 * (3 + 1) * 5
    model.passes = 0
    Ascent(threat="linf:0.1", steps=3, eot=5, target="runner_up", keep="last").search(model, X, Y)
    assert model.passes == (1 + 3) * 5, "the clean logits are a mean as well"


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_model_that_is_not_random_gains_nothing(norm):
    once, often = (Ascent(threat=f"{norm}:0.1", steps=4, eot=eot).run(MEAN, X, Y) for eot in (1, 3))
    assert torch.allclose(once.x_adv, often.x_adv, atol=1e-5) and torch.equal(once.fooled, often.fooled)


def test_the_compiled_step_averages_too():
    torch._dynamo.reset()
    compiled = torch.compile(ascent_step, backend="eager", fullgraph=True)
    attack = Ascent(threat="linf:0.1", steps=3, loss="pm", eot=3)
    eager, graph = attack.search(MEAN, X, Y), attack.search(MEAN, X, Y, step=compiled)
    assert torch.allclose(eager.x_adv, graph.x_adv, atol=1e-5) and torch.equal(eager.fooled, graph.fooled)


def test_no_passes_are_refused():
    with pytest.raises(UserError, match=r"eot.: input should be greater than or equal to 1"):
        Ascent(threat="linf:0.1", eot=0)
