"""EAD against the exact l1 distance of linear models, its descent step by step, and weakened variants."""

import pytest
import torch
from linear_models import Linear, balanced, classified, exact_distance, images

from hardtack.attacks import DDN, EAD
from hardtack.base.errors import UserError
from hardtack.threats import BALLS

SHORT = {"steps": 100, "c": 0.1, "searches": 6, "beta": 0.02}


@pytest.mark.parametrize("kind", ["grey", "active box", "corners"])
def test_the_search_comes_close_to_the_exact_l1_distance(kind):
    """The l2 term spreads the perturbation a little: the larger beta, the closer to the l1 distance."""
    model, x = balanced(Linear(seed=1), images(kind, count=8))
    y, _ = classified(model, x)
    optimum = exact_distance(model, x, y, "l1")
    x_adv, distance = EAD(threat="l1:60", rule="l1", **SHORT).distances(model, x, y)
    assert (model(x_adv).argmax(1) != y).all() and (x_adv >= 0).all() and (x_adv <= 1).all()
    assert torch.allclose((x_adv - x).flatten(1).abs().sum(dim=1), distance)
    ratio = distance.double() / optimum
    assert ratio.min() > 0.999 and ratio.median() < 1.08 and ratio.max() < 1.15


def test_the_perturbation_is_sparser_and_shorter_in_l1_than_that_of_l2():
    model, x = Linear(seed=1), images("active box", count=8)
    y, _ = classified(model, x)
    ours, other = EAD(threat="l1:60", **SHORT)(model, x, y), DDN(threat="l2:8")(model, x, y)
    assert ((ours != x).flatten(1).sum(1) < 0.7 * (other != x).flatten(1).sum(1)).all()
    assert (BALLS["l1"].size(ours - x) < BALLS["l1"].size(other - x)).all()


def test_the_descent_is_fista():
    """Beside the update as the paper writes it, in which every pixel is shrunk and projected by cases."""
    model, x = Linear().double(), images("active box", count=4).double()
    y, _ = classified(model, x)
    shown = []
    handle = model.register_forward_hook(lambda module, given, out: shown.append(given[0].detach().clone()))
    EAD(threat="l1:60", steps=5, searches=1, c=2.0, beta=0.01, lr=0.02).search(model, x, y, verdict=False)
    handle.remove()
    image, ahead, seen = x, x, shown[0::2]
    for step in range(6):
        assert torch.allclose(seen[step], image, atol=1e-7), step
        point = ahead.clone().requires_grad_()
        logits = model(point)
        label, other = logits.gather(1, y[:, None])[:, 0], logits.scatter(1, y[:, None], -torch.inf).amax(1)
        (((point - x) ** 2).sum() + 2.0 * (label - other).clamp_min(0).sum()).backward()
        z = ahead - 0.02 * (1 - step / 5) ** 0.5 * point.grad
        far, near = z - x > 0.01, z - x < -0.01
        moved = torch.where(far, (z - 0.01).clamp(max=1), torch.where(near, (z + 0.01).clamp(min=0), x))
        ahead, image = moved + step / (step + 3) * (moved - image), moved


@pytest.mark.parametrize("wrong", [{"searches": 1}, {"steps": 20}, {"beta": 1e-6}], ids=str)
def test_weaker_settings_are_caught(wrong):
    model, x = balanced(Linear(seed=1), images("active box", count=8))
    y, _ = classified(model, x)
    distance = EAD(threat="l1:60", rule="l1", **{**SHORT, **wrong}).distances(model, x, y)[1]
    ratio = distance.double() / exact_distance(model, x, y, "l1")
    assert not (ratio.median() < 1.08 and ratio.max() < 1.15)


def test_successes_inside_the_ball_are_preferred_and_confidence_is_kept():
    model, x = Linear(classes=4), images("active box", count=16)
    y, _ = classified(model, x)
    x_adv, distance = EAD(threat="l1:60", confidence=0.5, **SHORT).distances(model, x, y)
    logits = model(x_adv)
    other = logits.scatter(1, y[:, None], -torch.inf).amax(1)
    assert (other - logits.gather(1, y[:, None])[:, 0] >= 0.5).all() and distance.isfinite().all()
    eps = round(distance.median().item(), 3)
    found = EAD(threat=f"l1:{eps}", **SHORT).run(model, x, y)
    assert found.fooled.any() and not found.fooled.all()
    assert (found.broken_at[found.fooled] >= 0).all()


def test_successes_outside_of_the_ball_are_told_apart_in_large_images():
    x = torch.full((3, 3, 224, 224), 0.5)
    image = x.clone()
    for row, change in enumerate((0.1, 0.11, 0.001)):
        image[row, 0, 0, :40] += change
    for settings in ({}, {"beta": 5.0}, {"rule": "l1"}):
        distance, inside = EAD(threat="l1:1", **settings)._distance(image, x)
        assert inside.tolist() == [False, False, True] and distance[2] < distance[0] < distance[1]
        far = torch.where(x > 0.4, 1.0, 0.0)  # the largest change that a ball may hold
        assert EAD(threat="l1:200000", **settings)._distance(far, x)[0].max() < distance[0]


@pytest.mark.parametrize(
    "settings, words",
    [({"steps": 0}, "steps and searches"), ({"beta": 0}, "beta must"), ({"confidence": -1}, "confidence must")],
)
def test_bad_settings(settings, words):
    with pytest.raises(UserError, match=words):
        EAD(threat="l1:1", **settings)
