"""Adversarial logit pairing against its formula in NumPy."""

import numpy as np
import pytest
import torch

from hardtack.attacks import Ascent
from hardtack.objectives import ALPConfig
from hardtack.threats import Threat
from tiny_runs import Linear, images, labels

ATTACK = Ascent(threat=Threat.parse("linf:0.1"), steps=3)


def cross_entropy(logits, y):
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -log_p[np.arange(len(y)), y].mean()


def logits_of(model, x):
    return model(x).detach().double().numpy()


@pytest.mark.parametrize("pairing", [0.0, 0.5, 3.0])
def test_both_batches_count_half_and_the_logits_are_drawn_together(pairing):
    model, x, y = Linear(), images(), labels()
    objective = ALPConfig(attack=ATTACK, pairing=pairing).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    clean, attacked, target = logits_of(model, x), logits_of(model, x_adv), y.numpy()
    mixed = cross_entropy(np.concatenate([clean, attacked]), np.concatenate([target, target]))
    out = objective(x, y, x_adv)
    assert out["loss"].item() == pytest.approx(mixed + pairing * ((clean - attacked) ** 2).mean(), rel=1e-5)
    assert out["natural_loss"].item() == pytest.approx(cross_entropy(clean, target), rel=1e-5)


def test_gradient_flows_through_both_logits():
    """Of a linear model the distance is mean((W·d)²), d = x − x_adv: its gradient is 2·W·d·dᵀ over the count."""
    model, x, y = Linear(), images(), labels()
    objectives = [ALPConfig(attack=ATTACK, pairing=weight).build(model) for weight in (1.0, 0.0)]
    x_adv = objectives[0].prepare(x, y)["x_adv"]
    paired, plain = (torch.autograd.grad(o(x, y, x_adv)["loss"], model.head.weight)[0] for o in objectives)
    d = (x - x_adv).flatten(1)
    expected = 2 * model.head.weight @ d.T @ d / (len(x) * 4)
    assert torch.allclose(paired - plain, expected, rtol=1e-3, atol=1e-6)
