"""The thesis's settings: clean epochs first, steps of their final length, a nudged start; PGD-AT of paper 3."""

import pytest
import torch

from hardtack.attacks import Ascent
from hardtack.base.config import choose
from hardtack.base.registry import attacks
from hardtack.objectives import AdversarialConfig, Warmup
from hardtack.threats import Threat
from tiny_runs import Linear, images, labels

THREAT = Threat.parse("linf:4/255")


@pytest.mark.parametrize(
    "warmup, expected",
    [
        (Warmup(clean=2), {0.0: 0, 1.99: 0, 2.0: 1}),
        (Warmup(clean=2, epochs=4), {1.9: 0, 2.0: 0, 3.0: 0.25, 6.0: 1}),
        (Warmup(clean=1, epochs=4, hold="epoch"), {0.5: 0, 1.9: 0, 2.0: 0.25, 2.9: 0.25, 5.0: 1}),
        (Warmup(clean=1, epochs=2, shape="sine"), {1.0: 0, 2.0: 0.5**0.5, 3.0: 1}),
    ],
)
def test_clean_epochs_come_first(warmup, expected):
    for epoch, factor in expected.items():
        assert warmup.factor(epoch) == pytest.approx(factor), epoch


def test_clean_epochs_pay_for_no_attack():
    model, calls = Linear(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    objective = AdversarialConfig(attack=Ascent(threat=THREAT), warmup=Warmup(clean=3)).build(model)
    x = images()
    assert torch.equal(objective.prepare(x, labels(), epoch=2.5)["x_adv"], x) and not calls
    objective.prepare(x, labels(), epoch=3.0)
    assert len(calls) == 10


@pytest.mark.parametrize("relative, steps", [(1.0, 1), (1.1, 1), (1.5, 1), (0.75, 2)])
def test_a_final_step_is_of_the_final_radius(relative, steps):
    """1.1·eps is the thesis's 4.4/255 at 4/255; 1.5·eps/steps the later code's. Half-way, the ball is half as large."""
    attack = Ascent(threat=THREAT, steps=steps, relative_step=relative)
    for kind, factor in (("scaled", 0.5), ("final", 1.0)):
        radius, length = Warmup(epochs=2, step=kind).sizes(attack, 1.0, torch.device("cpu"))
        assert radius.item() == pytest.approx(2 / 255)
        assert length.item() == pytest.approx(relative * 4 / 255 * factor)


def test_the_projection_does_the_limiting():
    """From the far side of a small ball a full step reaches the near side; a scaled one of half the radius does not."""
    x, y = images() * 0.5 + 0.25, labels()
    attack = Ascent(threat=THREAT, steps=1, relative_step=0.5)
    reached = {}
    for kind in ("scaled", "final"):
        objective = AdversarialConfig(attack=attack, warmup=Warmup(epochs=4, step=kind)).build(Linear())
        delta = objective.prepare(x, y, epoch=1.0)["x_adv"] - x
        assert delta.abs().amax() <= 1 / 255 + 1e-6
        reached[kind] = (delta.abs() > 1 / 255 - 1e-6).float().mean().item()
    assert reached["final"] == 1.0 and reached["scaled"] < 0.5


def test_the_thesis_s_step_by_hand():
    """x + U(−eps, eps) + 1e-5, projected; one step of 1.5·eps along the sign; projected again."""
    model, x, y = Linear(), images() * 0.9 + 0.05, labels()
    words = {"name": "rfgsm", "threat": "linf:4/255", "relative_step": 1.5, "start": "nudged"}
    x_adv = AdversarialConfig(attack=choose(attacks, words)).build(model).prepare(x, y)["x_adv"]
    plain = Ascent(threat=THREAT, steps=1, step=1e-12, keep="last")(model, x, y)  # where it starts without the nudge
    probe = torch.minimum(plain + 1e-5, x + 4 / 255).clamp(0, 1).requires_grad_()
    torch.nn.functional.cross_entropy(model(probe), y, reduction="sum").backward()
    moved = probe.detach() + 6 / 255 * probe.grad.sign()
    assert torch.allclose(x_adv, moved.clamp(x - 4 / 255, x + 4 / 255).clamp(0, 1), atol=1e-6)


def test_paper_3_takes_fifteen_steps_of_a_tenth():
    attack = Ascent(threat=Threat.parse("linf:8/255"), steps=15, relative_step=0.1)
    x, y = images() * 0.5 + 0.25, labels()
    x_adv = AdversarialConfig(attack=attack).build(Linear()).prepare(x, y)["x_adv"]
    start = Threat.parse("linf:8/255").random_point(x, torch.zeros(12, dtype=torch.int64))
    assert (x_adv - x).abs().amax() == pytest.approx(8 / 255, abs=1e-6) and not torch.equal(x_adv, start)
    assert attack.step_length(torch.tensor(8 / 255)).item() == pytest.approx(0.8 / 255)
