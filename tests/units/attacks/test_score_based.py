"""NES and SPSA: unbiased estimates on linear models, their published update rules, logits alone, queries counted."""

import dataclasses

import pytest
import torch
from linear_models import Linear, best_gain, classified, gain, images
from torch import nn

from hardtack.attacks import NES, SPSA
from hardtack.attacks.gradients import difference_gradient
from hardtack.attacks.pool.attack_run import counted
from hardtack.attacks.score_based import directions_of, signs
from hardtack.base import randomness
from hardtack.base.errors import UserError

DRAWS = {"nes": randomness.normal, "spsa": signs}
ATTACKS = {"nes": NES(threat="linf:0.05", sigma=0.02), "spsa": SPSA(threat="linf:0.05")}
every_attack = pytest.mark.parametrize("name", ATTACKS)


def estimates(draw, model, x, y, samples, seeds=200):
    """One estimate of the margin's gradient for each seed."""
    state = {"x": x.repeat(seeds, 1, 1, 1), "keys": torch.arange(seeds).repeat_interleave(len(x)),
             "t": torch.zeros(seeds * len(x), dtype=torch.int64)}  # fmt: skip
    labels = y.repeat(seeds)

    def values(points):
        logits, copies = model(points), len(points) // len(labels)
        own = labels.repeat(copies)[:, None]
        return logits.gather(1, 1 - own) - logits.gather(1, own)

    ones = torch.ones(len(labels), 1)
    with torch.no_grad():
        return difference_gradient(values, state["x"], directions_of(state, draw, samples), 0.01, weights=ones)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_estimate_is_unbiased_on_a_linear_model(draw):
    """Its mean over seeds is the gradient, within four standard errors in every pixel, and its variance is known."""
    model, x = Linear(), images("grey", count=2)
    y, _ = classified(model, x)
    exact = model.slope(y)
    found = estimates(draw, model, x, y, 8).unflatten(0, (200, 2))
    error = found.std(dim=0) / 200**0.5
    assert ((found.mean(dim=0) - exact).abs() < 4.5 * error + 1e-4).all()
    # of m directions in d dimensions: (‖g‖² − g_i² (+ 2 g_i² for Gaussian noise)) / m in each pixel
    length = (exact**2).flatten(1).sum(1)[:, None, None, None]
    known = (length + (1 if draw is randomness.normal else -1) * exact**2) / 8
    assert (found.var(dim=0).mean() / known.mean() - 1).abs() < 0.1


def test_a_biased_estimate_would_be_noticed():
    model, x = Linear(), images("grey", count=2)
    y, _ = classified(model, x)
    found = estimates(lambda *given: randomness.uniform(*given) * 2 - 1, model, x, y, 8).unflatten(0, (200, 2))
    error = found.std(dim=0) / 200**0.5
    assert not ((found.mean(dim=0) - model.slope(y)).abs() < 4.5 * error + 1e-4).all()


class LogitsOnly(nn.Module):
    """A gradient of this model is an error."""

    class Refuse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            return logits.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise AssertionError("the attack asked for a gradient")

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.Refuse.apply(self.model(x))


@every_attack
def test_the_search_reaches_the_corner_of_the_ball_with_logits_alone(name):
    """Nearly the largest gain that the ball allows; a model that is never fooled is searched to the end."""
    model, x = LogitsOnly(Linear()), images(count=8)
    y, _ = classified(model.model, x)
    model.model.head.bias.data += 5 * nn.functional.one_hot(y[:1], 2)[0]
    same = y == y[0]
    found = ATTACKS[name].run(model, x[same], y[same])
    assert not found.fooled.any()
    reached = gain(model.model.slope(y[same]), x[same], found.x_adv)
    assert (reached / best_gain(model.model.slope(y[same]), x[same], 0.05, "linf")).min() > 0.97


@every_attack
@pytest.mark.parametrize("norm, eps", [("l2", 0.3), ("l1", 1.5)])
def test_the_other_norms(name, norm, eps):
    model, x = Linear(), images(count=8)
    y, _ = classified(model, x)
    model.head.bias.data += 5 * nn.functional.one_hot(y[:1], 2)[0]
    same = y == y[0]
    attack = dataclasses.replace(ATTACKS[name], threat=f"{norm}:{eps}")
    x_adv = attack(model, x[same], y[same])
    share = gain(model.slope(y[same]), x[same], x_adv) / best_gain(model.slope(y[same]), x[same], eps, norm)
    assert share.min() > (0.8 if norm == "l2" else 0.5)


@every_attack
def test_queries_are_counted_and_end_with_the_first_success(name):
    model, x = Linear(), images(count=8)
    y, _ = classified(model, x)
    attack = dataclasses.replace(ATTACKS[name], threat="linf:0.5", steps=20)
    with counted(model) as passes:
        found = attack.run(model, x, y)
    assert found.fooled.all() and passes[1] == 0
    # steps until the first success of each image, and the verification of claims
    steps = found.broken_at.sum().item()
    spent = (attack.samples + 1) * steps
    assert spent <= passes[0] <= spent + (attack.samples + 1) * 8 + 600
    assert attack.attempt_cost(21, 20, 2).forwards == (attack.samples + 1) * 20 + 1


@every_attack
def test_keys_and_seed_decide(name):
    model, x = Linear(classes=4), images(count=6)
    y, _ = classified(model, x)
    attack = dataclasses.replace(ATTACKS[name], steps=3, samples=10)
    first = attack(model, x, y)
    assert torch.equal(first, attack(model, x, y))
    assert not torch.equal(first, dataclasses.replace(attack, seed=1)(model, x, y))
    assert not torch.equal(first, attack(model, x, y, keys=torch.arange(6) + 7))


@every_attack
@pytest.mark.parametrize("wrong", [{"steps": 2}, {"samples": 2}], ids=str)
def test_weaker_settings_are_caught(name, wrong):
    model, x = Linear(), images(count=8)
    y, _ = classified(model, x)
    model.head.bias.data += 5 * nn.functional.one_hot(y[:1], 2)[0]
    same = y == y[0]
    x_adv = dataclasses.replace(ATTACKS[name], **wrong)(model, x[same], y[same])
    share = gain(model.slope(y[same]), x[same], x_adv) / best_gain(model.slope(y[same]), x[same], 0.05, "linf")
    assert share.min() < 0.97


@every_attack
def test_a_target_is_reached(name):
    model, x = Linear(classes=4), images(count=12)
    y, _ = classified(model, x)
    target = (y + 1) % 4
    found = dataclasses.replace(ATTACKS[name], threat="linf:0.6").run(model, x, y, target=target)
    assert found.fooled.all() and torch.equal(model(found.x_adv).argmax(1), target)


@every_attack
@pytest.mark.parametrize("settings, words", [({"steps": 0}, "at least 1"), ({"samples": 7}, "even")])
def test_bad_settings(name, settings, words):
    with pytest.raises(UserError, match=words):
        dataclasses.replace(ATTACKS[name], **settings)
