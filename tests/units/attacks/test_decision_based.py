"""Boundary attack and HopSkipJump: exact distances of linear models, predictions alone, images that leave early."""

import dataclasses
import functools

import pytest
import torch
from linear_models import SHAPE, Linear, classified, exact_distance, images
from torch import nn

from hardtack.attacks import Boundary, HopSkipJump, boundary
from hardtack.attacks.decision_based import between, starting_points, to_boundary
from hardtack.attacks.pool.attack_run import counted
from hardtack.base.errors import UserError

ATTACKS = {
    "boundary": Boundary(threat="l2:1", steps=5000),
    "hopskipjump, l2": HopSkipJump(threat="l2:1", steps=24, samples=60),
    "hopskipjump, linf": HopSkipJump(threat="linf:1", steps=32, samples=60),
}
every_attack = pytest.mark.parametrize("name", ATTACKS)
NEAR = 1.05


class PredictionsOnly(nn.Module):
    """Logits that are 1 for the predicted class and 0 for all others, and whose gradient is an error."""

    class Refuse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            return nn.functional.one_hot(logits.argmax(1), logits.shape[1]).float()

        @staticmethod
        def backward(ctx, gradient):
            raise AssertionError("the attack asked for a gradient")

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.Refuse.apply(self.model(x))


@functools.cache
def problem(norm, kind="active box"):
    model, x = Linear(seed=1), images(kind, count=6)
    y, _ = classified(model, x)
    return PredictionsOnly(model), x, y, exact_distance(model, x, y, norm)


def ratio(attack):
    model, x, y, optimum = problem(attack.threat.norm)
    x_adv, distance = attack.distances(model, x, y)
    assert (model(x_adv).argmax(1) != y).all() and (x_adv >= 0).all() and (x_adv <= 1).all()
    assert torch.allclose(attack.threat.size(x_adv - x), distance)
    return (distance.double() / optimum).max().item()


@every_attack
def test_the_search_comes_close_to_the_exact_distance_by_predictions_alone(name):
    assert 0.999 < ratio(ATTACKS[name]) < NEAR


def test_the_full_length_of_the_boundary_attack_is_exact_and_images_leave_when_they_have_converged():
    sizes = []
    model, x, y, optimum = problem("l2")
    handle = model.register_forward_hook(lambda module, given, out: sizes.append(len(given[0])))
    _, distance = Boundary(threat="l2:1", steps=9000, converged=1e-3).distances(model, x, y)
    handle.remove()
    assert (distance.double() / optimum).max() < 1.02
    assert len(sizes) < 9000 and sizes[0] == 6 and sizes[-1] < 6


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("boundary", {"steps": 600}),
        ("boundary", {"adaptation": 1.0001}),
        ("hopskipjump, l2", {"steps": 2}),
        ("hopskipjump, l2", {"samples": 2}),
        ("hopskipjump, l2", {"gamma": 1e4}),
        ("hopskipjump, linf", {"steps": 4}),
    ],
    ids=str,
)
def test_weaker_settings_are_caught(name, wrong):
    assert ratio(dataclasses.replace(ATTACKS[name], **wrong)) > NEAR


def test_a_walk_without_steps_towards_the_image_is_caught(monkeypatch):
    proposals = boundary._proposals

    def aimless(clean, point, spherical, source, keys):
        return proposals(clean, point, spherical, 0 * source, keys)

    monkeypatch.setattr(boundary, "_proposals", aimless)
    assert ratio(ATTACKS["boundary"]) > NEAR


# ---------------------------------------------------------------- parts


def test_random_images_of_several_kinds_are_tried_and_images_that_are_wrong_already_are_their_own_start():
    model, x, y, _ = problem("l2")
    wrong = torch.where(torch.arange(6) < 2, 1 - y, y)
    with counted(model) as passes:
        start, found = starting_points(model, x, wrong, 1.0, torch.arange(6), tries=30)
    assert found.all() and torch.equal(start[:2], x[:2]) and (model(start).argmax(1) != wrong).all()
    assert 6 + 4 <= passes[0] < 6 + 4 * 30
    again, _ = starting_points(model, x[3:4], wrong[3:4], 1.0, torch.arange(6)[3:4], tries=30)
    assert torch.equal(again[0], start[3])


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_bisection_ends_on_the_wrong_side_of_the_boundary(norm):
    model, x, y, _ = problem("l2")
    start, _ = starting_points(model, x, y, 1.0, torch.arange(6), tries=50)
    point = to_boundary(model, x, start, y, 1.0, norm=norm, rounds=20)
    assert (model(point).argmax(1) != y).all()
    size = (lambda d: d.flatten(1).norm(dim=1)) if norm == "l2" else (lambda d: d.flatten(1).abs().amax(1))
    inner = between(norm, x, start, 0.999 * size(point - x) / size(start - x))
    assert (model(inner).argmax(1) == y).all()


class Constant(nn.Module):
    def forward(self, x):
        return torch.tensor([1.0, 0.0]) + 0 * x.flatten(1)[:, :2]


@every_attack
def test_where_nothing_fools_the_image_stays_as_it_is(name):
    attack, x, model = ATTACKS[name], images(count=4), Constant()
    y = torch.zeros(4, dtype=torch.int64)
    x_adv, distance = attack.distances(model, x, y)
    assert distance.isinf().all() and torch.equal(x_adv, x)
    found = attack.run(model, x, y)
    assert not found.fooled.any() and (found.broken_at == -1).all() and not found.first_loss.isfinite().any()
    with counted(model) as passes:
        attack.run(model, x, 1 - y)
    assert passes[0] == 4 * 2, "a misclassified image is its own nearest success"


@every_attack
def test_the_threat_decides_what_counts(name):
    attack = dataclasses.replace(ATTACKS[name], steps=min(ATTACKS[name].steps, 2000))
    model, x, y, _ = problem(attack.threat.norm)
    distance = attack.distances(model, x, y)[1]
    eps = round(distance.median().item() * 1.02, 4)
    found = dataclasses.replace(attack, threat=f"{attack.threat.norm}:{eps}").run(model, x, y)
    assert torch.equal(found.fooled, distance <= eps) and found.fooled.any() and not found.fooled.all()
    assert torch.equal(found.broken_at >= 0, found.fooled)


@every_attack
def test_neither_the_batch_nor_the_order_matters(name):
    attack = dataclasses.replace(ATTACKS[name], steps=60 if name == "boundary" else 3)
    model, x = PredictionsOnly(Linear(classes=4)), images(count=8)
    y, keys = model(x).argmax(1), torch.arange(8) + 40
    whole = attack(model, x, y, keys=keys)
    order = torch.tensor([5, 2, 7, 0, 1, 6, 3, 4])
    assert torch.allclose(attack(model, x[order], y[order], keys=keys[order]), whole[order], atol=1e-4)
    alone = [attack(model, x[i : i + 1], y[i : i + 1], keys=keys[i : i + 1]) for i in range(8)]
    assert torch.allclose(torch.cat(alone), whole, atol=1e-4)


@every_attack
def test_the_passes_that_are_planned_are_enough(name):
    attack = dataclasses.replace(ATTACKS[name], steps=min(ATTACKS[name].steps, 40))
    model, x, y, _ = problem(attack.threat.norm)
    with counted(model) as passes:
        attack.run(model, x, y)
    planned = attack.batch_cost(2, SHAPE).forwards
    assert planned / 4 < passes[0] / len(x) <= planned and passes[1] == 0


@every_attack
def test_targets_that_random_images_reach(name):
    model, x = PredictionsOnly(Linear(classes=3)), images(count=8)
    y = model(x).argmax(1)
    attack = dataclasses.replace(ATTACKS[name], steps=min(ATTACKS[name].steps, 200))
    target = (y + 1) % 3
    x_adv, distance = attack.distances(model, x, y, target=target)
    found = distance.isfinite()
    assert found.sum() >= 6 and torch.equal(model(x_adv).argmax(1)[found], target[found])


@pytest.mark.parametrize(
    "make, settings, words",
    [
        (HopSkipJump, {"steps": 0}, "steps must be at least 1"),
        (HopSkipJump, {"gamma": 0}, "gamma must be positive"),
        (Boundary, {"tries": 0}, "steps and tries"),
        (Boundary, {"adaptation": 1.0}, "adaptation must be above 1"),
        (Boundary, {"source_step": 0}, "source_step must be positive"),
    ],
)
def test_bad_settings(make, settings, words):
    with pytest.raises(UserError, match=words):
        make(threat="l2:1", **settings)
