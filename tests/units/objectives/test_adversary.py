"""The inner player: the mode a model is attacked in, how its radius grows, what it leaves behind."""

import math

import pytest
import torch
from torch import nn

from hardtack.attacks import Ascent
from hardtack.objectives import Adversarial, AdversarialConfig, TradesConfig, Warmup
from hardtack.threats import Threat
from tiny_runs import Linear, images, labels


class Spy(nn.Module):
    """Records the mode at every call; dropout and batch norm make a wrong mode change the numbers too."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.linear = nn.BatchNorm2d(3), nn.Dropout(0.5), Linear()
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return self.linear(self.drop(self.norm(x)))


def build(model, objective=AdversarialConfig, **settings):
    warmup = settings.pop("warmup", Warmup())
    threat = Threat.parse(settings.pop("threat", "linf:0.1"))
    return objective(attack=Ascent(threat=threat, **settings), warmup=warmup).build(model)


def test_the_attack_sees_eval_mode_and_the_loss_sees_train_mode():
    model = Spy().train()
    build(model, steps=3)(images(), labels())
    assert model.modes == [False, False, False, True]


def test_the_attack_runs_in_train_mode_when_asked():
    model = Spy().train()
    build(model, steps=2, mode="train")(images(), labels())
    assert model.modes == [True, True, True]


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_preparing_leaves_model_and_random_state_as_they_were(mode):
    model = Spy().train()
    model.norm.eval()  # a user may have frozen one layer; its flag is its own
    model.linear.head.bias.requires_grad_(False)
    model.linear.head.weight.grad = torch.ones_like(model.linear.head.weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    random = torch.get_rng_state()
    build(model, steps=2, mode=mode).prepare(images(), labels(), keys=torch.arange(len(images())))
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == [True, True, True, False]
    assert torch.equal(model.linear.head.weight.grad, torch.ones_like(model.linear.head.weight))
    assert torch.equal(torch.get_rng_state(), random)


def test_the_attacked_images_carry_no_graph():
    x_adv = build(Spy(), steps=2).prepare(images(), labels())["x_adv"]
    assert not x_adv.requires_grad


# ---------------------------------------------------------------- warm-up


@pytest.mark.parametrize(
    "warmup, expected",
    [
        (Warmup(), {0.0: 1, 3.0: 1}),
        (Warmup(epochs=4), {0.0: 0, 1.0: 0.25, 1.5: 0.375, 4.0: 1, 9.0: 1}),
        (Warmup(epochs=4, hold="epoch"), {0.0: 0, 0.9: 0, 1.5: 0.25, 3.99: 0.75, 4.0: 1}),
        (Warmup(epochs=2, shape="sine"), {0.0: 0, 1.0: math.sin(math.pi / 4), 2.0: 1}),
        (Warmup(epochs=4, shape="sine", hold="epoch"), {1.7: math.sin(math.pi / 8), math.inf: 1}),
    ],
)
def test_radius_grows_as_configured(warmup, expected):
    for epoch, factor in expected.items():
        assert warmup.factor(epoch) == pytest.approx(factor), epoch


@pytest.mark.parametrize("threat", ["linf:0.1", "l2:1", "l1:5"])
@pytest.mark.parametrize("objective", [AdversarialConfig, TradesConfig])
def test_the_first_epoch_of_a_held_warmup_is_clean(threat, objective):
    x, y = images(), labels()
    held = build(Linear(), objective, threat=threat, steps=3, warmup=Warmup(epochs=5, hold="epoch"))
    assert torch.equal(held.prepare(x, y, epoch=0.8)["x_adv"], x)
    assert not torch.equal(held.prepare(x, y, epoch=1.0)["x_adv"], x)


@pytest.mark.parametrize("threat, step", [("linf:0.1", None), ("linf:0.1", 0.05), ("l2:1", None), ("l1:5", None)])
def test_half_way_the_ball_has_half_its_radius(threat, step):
    """The attack on a linear model reaches the surface, whatever the step, so its size is the radius."""
    x, y = images() * 0.5 + 0.25, labels()
    half = build(Linear(), threat=threat, steps=8, step=step, warmup=Warmup(epochs=2))
    reached = Threat.parse(threat).size(half.prepare(x, y, epoch=1.0)["x_adv"] - x)
    assert torch.allclose(reached, torch.full((12,), Threat.parse(threat).radius / 2), rtol=1e-3)


def test_an_image_is_attacked_alike_in_every_batch():
    """Training noise belongs to the image (its key), so micro-batches and ranks do not change it."""
    x, y, keys = images(), labels(), torch.arange(100, 112)
    objective: Adversarial = build(Linear(), steps=2)
    whole = objective.prepare(x, y, keys=keys)["x_adv"]
    parts = [objective.prepare(x[i : i + 5], y[i : i + 5], keys=keys[i : i + 5])["x_adv"] for i in (0, 5, 10)]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-6)
    other = objective.prepare(x, y, keys=keys + 1)["x_adv"]
    assert not torch.allclose(other, whole, atol=1e-3)


def test_training_keeps_the_last_iterate_and_pays_no_extra_pass():
    model = Spy()
    build(model, steps=4).prepare(images(), labels())
    assert len(model.modes) == 4
    model.modes.clear()
    build(model, steps=4, keep="best").prepare(images(), labels())
    assert len(model.modes) == 5
