"""DeepFool against distances known in closed form, its published settings, and images that leave early."""

import pytest
import torch
from linear_models import Linear, balanced, classified, exact_distance, images
from torch import nn

from hardtack.attacks import DeepFool
from hardtack.attacks.pool.attack_run import counted
from hardtack.base.errors import UserError
from hardtack.threats import BALLS
from hardtack.threats.planes import DUAL

every_norm = pytest.mark.parametrize("norm", ["linf", "l2", "l1"])


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Flatten(), nn.Linear(60, 16), nn.GELU(), nn.Linear(16, 5)).eval()
    net[-1].weight.data *= 5
    return net


@every_norm
def test_one_step_reaches_the_hyperplane(norm):
    """A linear model of two classes: the distance is the margin over the dual norm, times 1 + overshoot."""
    model, x = balanced(Linear(seed=1), images("grey", count=12))
    y, margin = classified(model, x)
    optimum = margin / BALLS[DUAL[norm]].size(model.slope(y)).double()
    for overshoot in (0.02, 0.1):
        attack = DeepFool(threat=f"{norm}:1", overshoot=overshoot)
        x_adv, distance = attack.distances(model, x, y)
        assert (model(x_adv).argmax(1) != y).all()
        assert torch.allclose(distance.double(), (1 + overshoot) * optimum, rtol=1e-3, atol=1e-6)
    with counted(model) as passes:
        attack.run(model, x, y)
    # the clean point with a gradient, the point beyond the boundary, and the verification of what was found
    assert passes == [2 * 12 + 12, 2 * 12]


def test_every_gradient_is_counted_and_planned():
    model, x = network(), images("grey", count=6)[:, :, :4, :5]
    y = model(x).argmax(1)
    attack = DeepFool(threat="l2:9", steps=1, overshoot=0.0)
    with counted(model) as passes:
        attack.run(model, x, y)
    assert passes == [3 * 6, 4 * 6] and attack.batch_cost(5, (3, 4, 5)) == (3, 4)
    assert attack.batch_cost(1000, (3, 4, 5)) == (3, 9)
    with counted(model) as passes:
        DeepFool(threat="l2:9", steps=1, target="runner_up").run(model, x, y)
    assert passes == [4 * 6, 6] and DeepFool(threat="l2:9", steps=1, target="runner_up").batch_cost(5, ()) == (4, 1)


@every_norm
def test_of_many_classes_the_nearest_boundary_is_reached(norm):
    """All boundaries are linearised, so that the exact distance of ten classes is found in one step."""
    model, x = Linear(classes=10), images("grey", count=12)
    model.head.weight.data *= torch.linspace(0.2, 2, 10)[:, None]  # the likeliest wrong class is seldom the nearest
    model, x = balanced(model, x)
    y, _ = classified(model, x)
    logits, others = model(x).double().detach(), torch.arange(10)
    optimum = []
    for i in range(len(x)):
        slope = model.slope(y[i].expand(10), others)
        away = (logits[i, y[i]] - logits[i]) / BALLS[DUAL[norm]].size(slope).double()
        optimum.append(away[others != y[i]].amin())
    _, distance = DeepFool(threat=f"{norm}:1").distances(model, x, y)
    ratio = distance.double() / torch.stack(optimum)
    assert ratio.min() > 1 and ratio.max() < 1.03
    _, few = DeepFool(threat=f"{norm}:1", candidates=2).distances(model, x, y)
    assert (few / distance).max() > 1.05


@every_norm
def test_the_box_in_the_way(norm):
    model, x = Linear(seed=1), images("active box", count=8)
    y, _ = classified(model, x)
    x_adv, distance = DeepFool(threat=f"{norm}:1").distances(model, x, y)
    assert (model(x_adv).argmax(1) != y).all() and (x_adv >= 0).all() and (x_adv <= 1).all()
    ratio = distance.double() / exact_distance(model, x, y, norm)
    assert ratio.min() > 0.999 and ratio.max() < 1.06


def test_images_leave_the_batch_when_they_are_fooled():
    """A misclassified image costs one pass, and what remains of the batch grows smaller."""
    model, x = network(), images(count=24)
    y = model(x).argmax(1)
    sizes = []
    handle = model.register_forward_hook(lambda module, given, out: sizes.append(len(given[0])))
    wrong = torch.where(torch.arange(24) < 10, (y + 1) % 5, y)
    x_adv, distance = DeepFool(threat="l2:1").distances(model, x, wrong)
    handle.remove()
    assert sizes[0] == 24 and sizes[1] == 14 and sizes == sorted(sizes, reverse=True) and len(sizes) < 20
    assert (distance[:10] == 0).all() and torch.equal(x_adv[:10], x[:10])
    assert (distance[10:] > 0).all() and distance.isfinite().all()
    alone = [DeepFool(threat="l2:1").distances(model, x[i : i + 1], wrong[i : i + 1])[1] for i in range(24)]
    assert torch.allclose(torch.cat(alone), distance, atol=1e-5)


def test_every_step_of_a_curved_model_is_needed():
    model, x = network(), images(count=24)
    y = model(x).argmax(1)
    whole, one = DeepFool(threat="l2:2").run(model, x, y), DeepFool(threat="l2:2", steps=1).run(model, x, y)
    assert whole.fooled.all() and not one.fooled.all()
    assert (whole.best_loss > whole.first_loss).all() and not whole.zero_gradient.any()


class Blind(nn.Module):
    def forward(self, x):
        return torch.tensor([1.0, 0.0, 0.5]) + 0 * x.flatten(1)[:, :3].detach()


def test_a_model_without_gradient_is_reported():
    x, y = images(count=4), torch.zeros(4, dtype=torch.int64)
    found = DeepFool(threat="l2:1", steps=3).run(Blind(), x, y)
    assert found.zero_gradient.all() and not found.fooled.any() and found.x_adv.isfinite().all()


def test_a_target_is_reached():
    model, x = network(), images(count=12)
    y = model(x).argmax(1)
    target = (y + 2) % 5
    x_adv, distance = DeepFool(threat="l2:5", steps=100).distances(model, x, y, target=target)
    found = distance.isfinite()
    assert found.sum() >= 10 and torch.equal(model(x_adv).argmax(1)[found], target[found])
    assert (distance >= DeepFool(threat="l2:5").distances(model, x, y)[1] - 0.05).all()


@pytest.mark.parametrize(
    "settings, words",
    [({"steps": 0}, "steps must be"), ({"candidates": 1}, "at least 2"), ({"overshoot": -0.1}, "overshoot must")],
)
def test_bad_settings(settings, words):
    with pytest.raises(UserError, match=words):
        DeepFool(threat="l2:1", **settings)
