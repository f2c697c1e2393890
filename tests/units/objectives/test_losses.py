"""The losses against formulas written out by hand, and what their gradients flow through."""

import dataclasses

import pytest
import torch
from torch import nn

from hardtack.attacks import Ascent
from hardtack.base.config import choose
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks, objectives
from hardtack.objectives import AdversarialConfig, StandardConfig, TradesConfig, Warmup
from hardtack.threats import Threat
from tiny_runs import CLASSES, Linear, images, labels

THREAT = Threat.parse("linf:0.1")


def one_hot(y, smoothing=0.0):
    hot = torch.eye(CLASSES)[y]
    return hot * (1 - smoothing) + smoothing / CLASSES


def cross_entropy(logits, target):
    """−Σ target · log softmax, by the definition and in float64."""
    logits = logits.double()
    log_p = logits - logits.exp().sum(dim=1, keepdim=True).log()
    return -(target.double() * log_p).sum(dim=1).mean()


def kl(p_logits, q_logits):
    """Σ p (log p − log q), mean over images."""
    p, q = p_logits.double().softmax(1), q_logits.double().softmax(1)
    return (p * (p.log() - q.log())).sum(dim=1).mean()


@pytest.fixture
def model():
    return Linear()


def mixed_labels():
    weights = torch.rand(12, CLASSES, generator=torch.Generator().manual_seed(5))
    return weights / weights.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_standard_is_cross_entropy_on_the_images_themselves(model, smoothing):
    x, y = images(), labels()
    out = StandardConfig(label_smoothing=smoothing).build(model)(x, y)
    assert out["loss"].item() == pytest.approx(cross_entropy(model(x), one_hot(y, smoothing)).item(), rel=1e-5)
    assert out["accuracy"].item() == pytest.approx((model(x).argmax(1) == y).float().mean().item())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_labels_are_smoothed_the_same_way(model, smoothing):
    x, soft = images(), mixed_labels()
    out = StandardConfig(label_smoothing=smoothing).build(model)(x, soft)
    target = soft * (1 - smoothing) + smoothing / CLASSES
    assert out["loss"].item() == pytest.approx(cross_entropy(model(x), target).item(), rel=1e-5)
    assert out["accuracy"].item() == pytest.approx((model(x).argmax(1) == soft.argmax(1)).float().mean().item())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_adversarial_is_cross_entropy_on_the_attacked_images_alone(model, smoothing):
    x, y = images(), labels()
    config = AdversarialConfig(attack=Ascent(threat=THREAT, steps=3), label_smoothing=smoothing)
    objective = config.build(model)
    out = objective(x, y)
    x_adv = dataclasses.replace(config.attack, keep="last")(model, x, y)
    assert (x_adv - x).abs().max() > 0.05, "the attack must have moved the images, or this proves nothing"
    assert out["loss"].item() == pytest.approx(cross_entropy(model(x_adv), one_hot(y, smoothing)).item(), rel=1e-5)
    assert out["robust_accuracy"].item() == pytest.approx((model(x_adv).argmax(1) == y).float().mean().item())


def test_fgsm_training_is_one_step_of_the_gradients_sign(model):
    x, y = images(), labels()
    attack = choose(attacks, {"name": "fgsm", "threat": "linf:0.1"})
    x_adv = AdversarialConfig(attack=attack).build(model).prepare(x, y)["x_adv"]
    probe = x.clone().requires_grad_()
    nn.functional.cross_entropy(model(probe), y, reduction="sum").backward()
    assert torch.allclose(x_adv, (x + 0.1 * probe.grad.sign()).clamp(0, 1), atol=1e-7)


@pytest.mark.parametrize("beta", [0.0, 1.0, 6.0])
def test_trades_value_and_gradient_follow_the_paper(model, beta):
    """Against an implementation that calls the model twice and differentiates both branches by hand."""
    x, y = images(), labels()
    objective = TradesConfig(attack=Ascent(threat=THREAT, steps=3), beta=beta).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    out = objective(x, y, x_adv)
    expected = cross_entropy(model(x), one_hot(y)) + beta * kl(model(x), model(x_adv))
    assert out["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    ours = torch.autograd.grad(out["loss"], model.head.weight)[0]
    theirs = torch.autograd.grad(expected, model.head.weight)[0]
    assert torch.allclose(ours, theirs.float(), rtol=1e-4, atol=1e-6)


def test_trades_divergence_runs_from_clean_to_attacked(model):
    x, y = images(), labels()
    objective = TradesConfig(attack=Ascent(threat=THREAT, steps=5), beta=1.0).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    forward, backward = kl(model(x), model(x_adv)).item(), kl(model(x_adv), model(x)).item()
    assert abs(forward - backward) > 1e-2, "the two directions must differ for this test to see anything"
    assert objective(x, y, x_adv)["kl"].item() == pytest.approx(forward, rel=1e-4)


def test_trades_sends_gradient_through_both_branches(model):
    """A detached branch would leave the gradient of the other alone; the true one is neither."""
    x, y = images(), labels()
    objective = TradesConfig(attack=Ascent(threat=THREAT, steps=3), beta=6.0).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    ours = torch.autograd.grad(objective(x, y, x_adv)["loss"], model.head.weight)[0]
    natural = cross_entropy(model(x), one_hot(y))
    for p, q in ((model(x).detach(), model(x_adv)), (model(x), model(x_adv).detach())):
        half = torch.autograd.grad(natural + 6 * kl(p, q), model.head.weight, retain_graph=True)[0]
        assert not torch.allclose(ours, half.float(), rtol=1e-2)


def test_trades_smooths_only_the_natural_part(model):
    x, y = images(), labels()
    objective = TradesConfig(attack=Ascent(threat=THREAT, steps=2), beta=3.0, label_smoothing=0.1).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    expected = cross_entropy(model(x), one_hot(y, 0.1)) + 3 * kl(model(x), model(x_adv))
    assert objective(x, y, x_adv)["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_trades_climbs_the_divergence_unless_told_otherwise(model):
    plain = TradesConfig(attack=Ascent(threat=THREAT)).build(model)
    told = TradesConfig(attack=Ascent(threat=THREAT, loss="ce")).build(model)
    assert plain.adversary.attack.loss == "kl" and told.adversary.attack.loss == "ce"
    x, y = images(), labels()
    reached = [kl(model(x), model(o.prepare(x, y)["x_adv"])).item() for o in (plain, told)]
    start = kl(model(x), model(THREAT.random_point(x, torch.arange(12)))).item()
    assert reached[0] > 2 * start, "the inner problem must raise the KL it is trained on"


def test_trades_calls_the_model_once_for_its_loss(model):
    """Under DDP a wrapped module must be called once per micro-step."""
    calls = []
    model.register_forward_hook(lambda module, args, out: calls.append(len(args[0])))
    objective = TradesConfig(attack=Ascent(threat=THREAT, steps=2)).build(model)
    x_adv = objective.prepare(images(), labels())["x_adv"]
    calls.clear()
    objective(images(), labels(), x_adv)
    assert calls == [24]


def test_a_clean_start_is_refused_where_its_gradient_is_zero(model):
    config = choose(objectives, {"name": "trades", "attack": {"name": "fgsm", "threat": "linf:0.1"}})
    with pytest.raises(UserError, match="kl loss has zero gradient"):
        config.build(model)


@pytest.mark.parametrize(
    "config, fault",
    [
        ({"name": "trades", "beta": -1}, "beta"),
        ({"name": "trades", "label_smoothing": 1.5}, "label_smoothing"),
        ({"name": "standard", "label_smoothing": -0.1}, "label_smoothing"),
        ({"name": "adversarial", "label_smoothing": 2}, "label_smoothing"),
        ({"name": "adversarial", "warmup": {"epochs": -1}}, "warmup"),
        ({"name": "adversarial", "attack": {"name": "pgd"}}, r"attack\.threat"),
    ],
)
def test_impossible_settings_stop_before_training(config, fault):
    with pytest.raises(UserError, match=fault):
        choose(objectives, config)


def test_only_attacks_that_climb_can_train():
    with pytest.raises(UserError, match="ascent attack"):
        AdversarialConfig(attack=lambda model, x, y: x, warmup=Warmup()).build(Linear())
