"""On linear models the strongest attack is known in closed form, and the ascent must find it."""

import dataclasses

import pytest
import torch
from linear_models import Linear, best_gain, gain, images, labels

from hardtack.attacks import Ascent, ascent
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat

MODEL = Linear()
Y = labels()
SLOPE = MODEL.slope(Y)
KINDS = ["grey", "active box", "corners"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def share(attack, kind, model=MODEL):
    """How much of the largest possible rise an attack achieves: the worst of 16 images."""
    x = images(kind)
    found = gain(SLOPE, x, attack(model, x, Y))
    return (found / best_gain(SLOPE, x, attack.threat.radius, attack.threat.norm)).min().item()


def preset(name, **settings):
    return attacks.get(name).make(**{**attacks.get(name).presets, **settings})


# ---------------------------------------------------------------- untargeted


@every_kind
@pytest.mark.parametrize("loss", ["ce", "margin", "dlr"])
@pytest.mark.parametrize("eps", ["8/255", "0.3", "1"])
@pytest.mark.parametrize("name", ["fgsm", "pgd", "momentum_pgd"])
def test_linf_attacks_reach_the_optimum(name, eps, loss, kind):
    assert share(preset(name, threat=f"linf:{eps}", loss=loss), kind) > 1 - 1e-5


@every_kind
@pytest.mark.parametrize("eps", ["0.3", "1.5", "4"])
def test_l2_attacks_come_close_and_longer_steps_arrive(eps, kind):
    # with steps of 2.5 eps / n the part of a random start that leads nowhere only fades to e^-2.5 of itself
    assert share(Ascent(threat=f"l2:{eps}", steps=40), kind) > {"0.3": 0.97, "1.5": 0.96, "4": 0.89}[eps]
    assert share(Ascent(threat=f"l2:{eps}", steps=40, relative_step=1), kind) > 1 - 1e-3


@every_kind
@pytest.mark.parametrize("eps", ["0.3", "2", "5", "15"])
def test_l1_attacks_come_close_to_the_knapsack(eps, kind):
    assert share(Ascent(threat=f"l1:{eps}", steps=100), kind) > 0.985


@every_kind
def test_kl_reaches_the_further_of_two_ends(kind):
    x = images(kind)
    with torch.no_grad():
        clean = MODEL(x).double().log_softmax(1)
        rise, fall = (best_gain(sign * SLOPE, x, 0.1, "linf") for sign in (1, -1))
        difference = MODEL(x).double()[torch.arange(16), 1 - Y] - MODEL(x).double()[torch.arange(16), Y]
    ends = torch.stack([difference + rise, difference - fall])
    there = torch.where((Y == 1)[:, None], torch.stack([ends, 0 * ends], -1), torch.stack([0 * ends, ends], -1))
    kl = (clean.exp() * (clean - there.log_softmax(-1))).sum(-1)
    found = Ascent(threat="linf:0.1", loss="kl", restarts=8).run(MODEL, x, Y)
    there = (found.best_loss.double() - kl.amax(0)).abs() < 1e-3 * kl.amax(0)
    assert (there | found.fooled).all(), "a lower loss is kept only for a wrong answer"
    assert there.sum() >= 8


# ---------------------------------------------------------------- targeted

MANY = Linear(classes=5)


def test_a_targeted_attack_reaches_its_target_where_it_can():
    x, y = images(), MANY(images()).argmax(1)
    for how in ("random", "least_likely", "runner_up"):
        outcome = Ascent(threat="linf:1", target=how, steps=20).run(MANY, x, y)
        predicted = MANY(outcome.x_adv).argmax(1)
        assert torch.equal(outcome.fooled, predicted != y), how
        assert outcome.fooled.all(), "in the whole box a linear model can be led anywhere"


def test_a_targeted_attack_reaches_the_optimum_of_its_loss():
    x = images("active box")
    target = 1 - Y
    for loss in ("ce", "margin"):
        found = Ascent(threat="linf:0.05", loss=loss)(MODEL, x, Y, target=target)
        assert (gain(SLOPE, x, found) / best_gain(SLOPE, x, 0.05, "linf")).min() > 1 - 1e-5


def test_targets_given_by_the_caller_are_aimed_at_even_if_they_are_the_labels_themselves():
    x = images()
    outcome = Ascent(threat="linf:1").run(MODEL, x, Y, target=Y)
    assert outcome.fooled.all() and torch.equal(MODEL(outcome.x_adv).argmax(1), Y)


@pytest.mark.parametrize("how", ["random", "least_likely", "runner_up"])
def test_a_target_is_never_the_label(how):
    clean = torch.randn(5000, 5, generator=torch.Generator().manual_seed(0))
    y = torch.arange(5000) % 5
    target = ascent.choose_target(clean, y, torch.arange(5000), how)
    assert (target != y).all() and target.min() >= 0 and target.max() < 5
    logits = clean.scatter(1, y[:, None], -torch.inf if how == "runner_up" else torch.inf)
    if how == "random":
        offsets = ((target - y) % 5).bincount(minlength=5)
        assert offsets[0] == 0 and (offsets[1:] - 1250).abs().max() < 200, "every other class, about equally often"
    else:
        assert torch.equal(target, logits.argmax(1) if how == "runner_up" else logits.argmin(1))
    two = ascent.choose_target(clean[:, :2], y % 2, torch.arange(5000), how)
    assert torch.equal(two, 1 - y % 2)


def test_the_seed_moves_random_targets():
    x, y = images(count=64), labels(64, 5)
    first, second = (Ascent(threat="linf:1", target="random", steps=20, seed=seed)(MANY, x, y) for seed in (0, 1))
    assert not torch.equal(MANY(first).argmax(1), MANY(second).argmax(1))


# ---------------------------------------------------------------- one loop


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_fgsm_is_one_step_of_pgd(norm):
    x = images()
    threat = Threat(norm, "0.25")
    fgsm = preset("fgsm", threat=threat)(MODEL, x, Y)
    for settings in ({"step": 0.25}, {"relative_step": 1}):
        assert torch.equal(fgsm, Ascent(threat=threat, start="clean", steps=1, **settings)(MODEL, x, Y))
    rfgsm = preset("rfgsm", threat=threat)(MODEL, x, Y)
    assert torch.equal(rfgsm, Ascent(threat=threat, steps=1, relative_step=1.25)(MODEL, x, Y))


def test_fgsm_is_the_sign_of_the_gradient():
    x = images()
    by_hand = (x + 0.1 * SLOPE.sign()).clamp(0, 1)
    assert torch.allclose(preset("fgsm", threat="linf:0.1")(MODEL, x, Y), by_hand, atol=1e-7)


def test_momentum_steps_along_the_running_sum_of_normalised_gradients():
    """Two steps by hand, with a gradient that turns: x² has slope 2x, which changes sign."""

    class Bowl(torch.nn.Module):
        def forward(self, x):
            value = ((x - 0.5) ** 2).flatten(1).sum(1)
            return torch.stack([-value, value], 1) * 3

    x = torch.tensor([0.52, 0.3, 0.9]).reshape(1, 3, 1, 1)
    attack = Ascent(threat="linf:0.2", steps=2, step=0.03, momentum=0.7, start="clean", loss="margin", keep="last")
    gradient = 12 * (x - 0.5)
    velocity = gradient / gradient.abs().mean()
    first = (x + 0.03 * velocity.sign()).clamp(0, 1)
    gradient = 12 * (first - 0.5)
    velocity = 0.7 * velocity + gradient / gradient.abs().mean()
    second = (first + 0.03 * velocity.sign()).clamp(0, 1)
    assert torch.allclose(attack(Bowl(), x, torch.tensor([0])), second, atol=1e-6)


# ---------------------------------------------------------------- mutants


def _with_ball(monkeypatch, norm, **functions):
    monkeypatch.setitem(BALLS, norm, dataclasses.replace(BALLS[norm], **functions))


def test_a_sign_turned_round_is_caught():
    step = ascent.ascent_step

    def wrong(*inputs, sign, **rest):
        return step(*inputs, sign=-sign, **rest)

    attack = Ascent(threat="linf:0.1", keep="last")
    x = images()
    found = attack.search(MODEL, x, Y, step=wrong).x_adv
    assert (gain(SLOPE, x, found) < 0).all()


def test_an_attack_without_projection_is_caught(monkeypatch):
    _with_ball(monkeypatch, "linf", project=lambda z, x, eps: z.clamp(0, 1))
    attack, x = Ascent(threat="linf:0.05"), images()
    assert not attack.threat.contains(attack(MODEL, x, Y), x).any()


def test_a_projection_without_the_box_is_caught(monkeypatch):
    _with_ball(monkeypatch, "linf", project=lambda z, x, eps: torch.min(torch.max(z, x - eps), x + eps))
    attack, x = Ascent(threat="linf:0.3"), images()
    assert not attack.threat.contains(attack(MODEL, x, Y), x).any()


@pytest.mark.parametrize("norm, eps, least", [("l2", "1.5", 0.96), ("l1", "5", 0.985)])
def test_one_step_instead_of_many_is_caught(norm, eps, least):
    attack = Ascent(threat=f"{norm}:{eps}", steps=1, relative_step=2.5 / 40)
    assert share(attack, "active box") < least


def test_steps_too_short_are_caught():
    assert share(Ascent(threat="linf:0.3", steps=10, relative_step=0.1), "active box") < 1 - 1e-5


def test_a_linf_step_in_the_l2_ball_is_caught(monkeypatch):
    _with_ball(monkeypatch, "l2", steepest_step=lambda g, x, r: g.sign() * r / 60**0.5)
    assert share(Ascent(threat="l2:0.3", steps=40, relative_step=1), "grey") < 1 - 1e-4


def test_an_l1_step_that_ignores_the_box_is_caught(monkeypatch):
    """What the step once did: equal steps on the best pixels that are not exactly on a face."""

    def wasteful(gradient, x_adv, length):
        rows, pixels = gradient.flatten(1), x_adv.flatten(1)
        room = torch.where(rows > 0, 1 - pixels, pixels)
        top, where = torch.where(room > 0, rows.abs(), 0).topk(3, dim=1)
        moved = torch.zeros_like(rows).scatter(1, where, rows.gather(1, where).sign() * (top > 0) * length / 3)
        return moved.reshape(gradient.shape)

    _with_ball(monkeypatch, "l1", steepest_step=wasteful)
    assert share(Ascent(threat="l1:5", steps=100), "active box") < 0.7


def test_clipping_instead_of_projecting_in_l1_is_caught(monkeypatch):
    def shortcut(z, x, eps):
        delta = (z - x).flatten(1)
        scale = (eps / delta.abs().sum(1, keepdim=True).clamp_min(1e-30)).clamp(max=1)
        return (x + (delta * scale).reshape(x.shape)).clamp(0, 1)

    _with_ball(monkeypatch, "l1", project=shortcut)
    assert (
        share(Ascent(threat="l1:2", steps=100), "corners") < 0.87
        or share(Ascent(threat="l1:5", steps=100), "active box") < 0.985
    )


def test_kl_from_the_clean_image_would_go_nowhere():
    with pytest.raises(UserError, match="zero gradient at the clean image"):
        Ascent(threat="linf:0.1", loss="kl", start="clean")

    class Stuck(Ascent):
        def starting_point(self, x, eps, keys, ball):
            return x

    stuck, free = (kind(threat="linf:0.1", loss="kl").run(MODEL, images(), Y) for kind in (Stuck, Ascent))
    assert stuck.zero_gradient.any() and not free.zero_gradient.any()
    assert (stuck.first_loss.abs() < 1e-6).all() and (free.first_loss > 0).all()
