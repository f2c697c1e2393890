"""MART against its formula in NumPy."""

import numpy as np
import pytest
import torch

from hardtack.attacks import Ascent
from hardtack.base.config import choose
from hardtack.base.registry import objectives
from hardtack.objectives import MARTConfig
from hardtack.objectives.mart import most_likely_other
from hardtack.threats import Threat
from tiny_runs import Linear, images, labels

ATTACK = Ascent(threat=Threat.parse("linf:0.1"), steps=3)


def probabilities(model, x):
    logits = model(x).detach().double().numpy()
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def literal(p, q, y, beta):
    """Image by image: p of the clean, q of the attacked one."""
    total = 0.0
    for clean, attacked, label in zip(p, q, y, strict=True):
        others = [attacked[k] for k in range(len(attacked)) if k != label]
        boosted = -np.log(attacked[label]) - np.log(1.0001 - max(others))
        divergence = sum(clean[k] * np.log(clean[k] / attacked[k]) for k in range(len(clean)))
        total += boosted + beta * divergence * (1 - clean[label])
    return total / len(y)


@pytest.mark.parametrize("beta", [0.0, 5.0])
def test_the_loss_is_the_paper_s(beta):
    model, x, y = Linear(), images(), labels()
    objective = MARTConfig(attack=ATTACK, beta=beta).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    p, q = probabilities(model, x), probabilities(model, x_adv)
    assert (p.argmax(1) != q.argmax(1)).any(), "the attack must have changed something, or this proves little"
    assert objective(x, y, x_adv)["loss"].item() == pytest.approx(literal(p, q, y.numpy(), beta), rel=1e-5)


def test_gradient_flows_through_every_term():
    """Against finite differences of the literal formula, in a few weights."""
    model, x, y = Linear().double(), images().double(), labels()
    objective = MARTConfig(attack=ATTACK, beta=5.0).build(model)
    with torch.no_grad():
        x_adv = (x + 0.1 * (-1.0) ** torch.arange(x[0].numel()).view(x[0].shape)).clamp(0, 1)
    weight = model.head.weight
    # the objective's own softmax runs in float32, so the step must not be too small
    gradient = torch.autograd.grad(objective(x, y, x_adv)["loss"], weight)[0]
    for place in [(0, 0), (1, 50), (3, 191)]:
        values = []
        for shift in (1e-4, -1e-4):
            with torch.no_grad():
                weight[place] += shift
                p, q = probabilities(model, x), probabilities(model, x_adv)
                weight[place] -= shift
            values.append(literal(p, q, y.numpy(), 5.0))
        assert gradient[place].item() == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-3, abs=1e-6)


def test_a_model_that_is_sure_and_wrong_has_a_finite_loss():
    model, x, y = Linear(scale=100.0), images(), labels()
    loss = MARTConfig(attack=ATTACK).build(model)(x, y)["loss"]
    assert loss.isfinite() and loss > 10


def test_the_label_is_not_among_the_others():
    p = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    assert torch.allclose(most_likely_other(p, torch.tensor([0, 1])), torch.tensor([0.2, 0.7]))


def test_lambda_is_five_and_the_attack_starts_beside_the_image():
    config = choose(objectives, "mart")
    assert config.beta == 5.0 and config.attack.start == "gaussian" and config.attack.steps == 10
