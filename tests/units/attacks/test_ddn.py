"""DDN against distances known in closed form, and weakened variants of it."""

import dataclasses
import functools

import pytest
import torch
from linear_models import Linear, classified, exact_distance, images

from hardtack.attacks import DDN
from hardtack.attacks.nearest import Nearest
from hardtack.base.errors import UserError


@functools.cache
def problem(kind):
    """A model, images, their labels, and the exact distances."""
    model, x = Linear(seed=1), images(kind, count=6)
    y, _ = classified(model, x)
    return model, x, y, exact_distance(model, x, y, "l2")


@pytest.mark.parametrize("kind", ["grey", "active box", "corners"])
def test_the_search_comes_close_to_the_exact_distance(kind):
    model, x, y, optimum = problem(kind)
    x_adv, distance = DDN(threat="l2:1").distances(model, x, y)
    assert (model(x_adv).argmax(1) != y).all() and (x_adv >= 0).all() and (x_adv <= 1).all()
    assert torch.allclose((x_adv - x).flatten(1).norm(dim=1), distance)
    ratio = distance.double() / optimum
    assert ratio.min() > 0.999 and ratio.max() < 1.01


@pytest.mark.parametrize("wrong", [{"steps": 8}, {"gamma": 0.6}, {"gamma": 1e-6, "init_norm": 5.0}], ids=str)
def test_weaker_settings_are_caught(wrong):
    model, x, y, optimum = problem("active box")
    distance = DDN(threat="l2:1", **wrong).distances(model, x, y)[1]
    assert not (distance.double() / optimum).max() < 1.01


def test_the_last_iterate_alone_is_caught(monkeypatch):
    after = Nearest.after

    def last(self, at, hit, distance, inside, taken):
        seen = after(self, at, hit, distance, inside, taken)
        return seen._replace(found=seen.found._replace(x_adv=at.x_adv))

    model, x = Linear(), images(count=16)
    y, _ = classified(model, x)
    attack = DDN(threat="l2:7")
    assert attack.run(model, x, y).fooled.all()
    monkeypatch.setattr(Nearest, "after", last)
    assert not attack.run(model, x, y).fooled.all()


def test_the_threat_decides_what_counts():
    model, x = Linear(classes=4), images("active box", count=24)
    y, _ = classified(model, x)
    attack = DDN(threat="l2:1")
    distance = attack.distances(model, x, y)[1]
    eps = round(distance.median().item(), 3)
    found = dataclasses.replace(attack, threat=f"l2:{eps}").run(model, x, y)
    clear = (distance - eps).abs() > 0.01 * eps
    assert torch.equal(found.fooled[clear], (distance <= eps)[clear])
    target = (y + 1) % 4
    x_adv, aimed = attack.distances(model, x, y, target=target)
    assert torch.equal(model(x_adv).argmax(1), target) and (aimed > 0.9 * distance).all()


@pytest.mark.parametrize(
    "settings, words",
    [({"steps": 0}, "steps must be"), ({"gamma": 1.0}, "gamma must"), ({"init_norm": 0}, "init_norm must")],
)
def test_bad_settings(settings, words):
    with pytest.raises(UserError, match=words):
        DDN(threat="l2:1", **settings)
