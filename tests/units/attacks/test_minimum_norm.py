"""FMN against distances known in closed form: linear models, with and without the box in the way."""

import dataclasses

import pytest
import torch
from linear_models import SHAPE, WIDEST, Linear, balanced, classified, exact_distance, images, labels
from torch import nn

from hardtack.attacks import MinimumNorm
from hardtack.attacks.nearest import Nearest
from hardtack.base.config import choose, plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat
from hardtack.threats.planes import DUAL

NORMS = ["linf", "l2", "l1"]
every_norm = pytest.mark.parametrize("norm", NORMS)


def ratio(attack, model, x, y, optimum):
    x_adv, distance = attack.distances(model, x, y)
    assert (x_adv >= 0).all() and (x_adv <= 1).all()
    assert (model(x_adv).argmax(1) != y).all()
    assert torch.allclose(attack.threat.size(x_adv - x), distance)
    return (distance.double() / optimum).max().item()


# ---------------------------------------------------------------- closed forms


@every_norm
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_without_a_box_the_distance_is_the_margin_over_the_dual_norm(norm, scale, seed):
    """Also with a linear estimate so good that it lands on the boundary and never crosses it (3.0, seed 1)."""
    model, x = balanced(Linear(seed=seed, scale=scale), images("grey", count=12))
    y, margin = classified(model, x)
    optimum = margin / BALLS[DUAL[norm]].size(model.slope(y)).double()
    assert optimum.min() > 0 and optimum.max() < 0.45
    assert 0.999 < ratio(MinimumNorm(threat=f"{norm}:1"), model, x, y, optimum) < 1.01


@every_norm
@pytest.mark.parametrize("kind", ["active box", "corners"])
def test_with_the_box_in_the_way(norm, kind):
    model, x = Linear(seed=1), images(kind, count=8)
    y, _ = classified(model, x)
    optimum = exact_distance(model, x, y, norm)
    assert 0.999 < ratio(MinimumNorm(threat=f"{norm}:1"), model, x, y, optimum) < 1.02


@every_norm
@pytest.mark.parametrize("classes", [5, 1000])
def test_of_many_classes_one_of_the_nearest_is_found(norm, classes):
    """The margin leads to the likeliest wrong class, which is not always the nearest, in l1 least of all."""
    model, x = balanced(Linear(classes=classes), images("grey", count=12))
    y, _ = classified(model, x)
    logits = model(x).double().detach()
    others = torch.arange(classes)
    optimum = []
    for i in range(len(x)):
        slope = model.slope(y[i].expand(classes), others)
        away = (logits[i, y[i]] - logits[i]) / BALLS[DUAL[norm]].size(slope).double()
        optimum.append(away[others != y[i]].amin())
    optimum = torch.stack(optimum)
    assert optimum.max() < 0.45
    attack = MinimumNorm(threat=f"{norm}:1")
    assert 0.999 < ratio(attack, model, x, y, optimum) < (1.4 if norm == "l1" else 1.05)
    assert (attack.distances(model, x, y)[1].double() / optimum).median() < 1.01


@pytest.mark.parametrize("wrong", [{"steps": 8}, {"relative_step": 0.02}], ids=str)
def test_weaker_settings_are_caught(wrong):
    model, x = Linear(), images("active box", count=8)
    y, _ = classified(model, x)
    optimum = {norm: exact_distance(model, x, y, norm) for norm in NORMS}
    attack = {norm: MinimumNorm(threat=f"{norm}:1", **wrong) for norm in NORMS}
    _, distance = zip(*(attack[norm].distances(model, x, y) for norm in NORMS), strict=True)
    worst = [(found.double() / optimum[norm]).max().item() for norm, found in zip(NORMS, distance, strict=True)]
    assert max(worst) > 1.02


def test_the_last_iterate_alone_is_caught(monkeypatch):
    """The search ends on the boundary, on either side of it."""
    after = Nearest.after

    def last(self, at, hit, distance, inside, taken):
        seen = after(self, at, hit, distance, inside, taken)
        return seen._replace(found=seen.found._replace(x_adv=at.x_adv))

    model, x = Linear(), images(count=16)
    y, _ = classified(model, x)
    attack = MinimumNorm(threat="linf:1")
    assert attack.run(model, x, y).fooled.all()
    monkeypatch.setattr(Nearest, "after", last)
    assert not attack.run(model, x, y).fooled.all()


# ---------------------------------------------------------------- what is reported

MODEL = Linear(classes=4)
X = images("active box", count=24)
Y, _ = classified(MODEL, X)


@every_norm
def test_one_run_draws_the_whole_curve(norm):
    attack = MinimumNorm(threat=f"{norm}:0.05")
    _, distance = attack.distances(MODEL, X, Y)
    for quantile in (0.25, 0.5, 0.75):
        eps = round(distance.quantile(quantile).item(), 3)
        found = dataclasses.replace(attack, threat=Threat(norm, eps)).run(MODEL, X, Y)
        clear = (distance - eps).abs() > 0.01 * eps  # a projection may still fool where the image found just misses
        assert torch.equal(found.fooled[clear], (distance <= eps)[clear])
        assert found.fooled.any() and not found.fooled.all()
        assert torch.equal(found.fooled, MODEL(found.x_adv).argmax(1) != Y)
        assert Threat(norm, eps).contains(found.x_adv, X).all()
        assert torch.equal(found.broken_at >= 0, found.fooled) and found.broken_at.max() <= 100
        assert not found.zero_gradient.any() and not found.not_finite.any()
        assert (found.best_loss > found.first_loss).all()


@every_norm
def test_an_image_that_is_wrong_already_is_at_distance_zero(norm):
    y = torch.where(torch.arange(24) < 12, Y, (Y + 1) % 4)
    attack = MinimumNorm(threat=f"{norm}:0.1")
    x_adv, distance = attack.distances(MODEL, X, y)
    assert (distance[12:] == 0).all() and torch.equal(x_adv[12:], X[12:]) and (distance[:12] > 0).all()
    found = attack.run(MODEL, X, y)
    assert found.fooled[12:].all() and (found.broken_at[12:] == 0).all()


class Constant(nn.Module):
    def forward(self, x):
        return torch.tensor([1.0, 0.0]) + 0 * x.flatten(1)[:, :2]


@every_norm
def test_where_nothing_fools_the_distance_is_infinite(norm):
    attack, y = MinimumNorm(threat=f"{norm}:0.1", steps=5), torch.zeros(24, dtype=torch.int64)
    x_adv, distance = attack.distances(Constant(), X, y)
    assert distance.isinf().all() and x_adv.isfinite().all()
    found = attack.run(Constant(), X, y)
    assert found.zero_gradient.all() and not found.fooled.any() and (found.broken_at == -1).all()


class Faulty(nn.Module):
    def forward(self, x):
        moved = (x - X[: len(x)]).flatten(1).abs().amax(1, keepdim=True) > 0
        return torch.where(moved, torch.nan, MODEL(x))


def test_logits_that_are_not_numbers_are_no_success():
    found = MinimumNorm(threat="l2:1", steps=5).run(Faulty(), X, Y)
    assert found.not_finite.all() and not found.fooled.any() and found.x_adv.isfinite().all()


@every_norm
def test_a_search_without_a_verdict_claims_only_what_it_saw(norm):
    attack = MinimumNorm(threat=f"{norm}:0.05")
    told, silent = (attack.search(MODEL, X, Y, verdict=verdict) for verdict in (True, False))
    assert torch.equal(told.x_adv, silent.x_adv) and (told.fooled | ~silent.fooled).all()


# ---------------------------------------------------------------- targets, batches, settings


@every_norm
def test_targets_are_reached(norm):
    attack = MinimumNorm(threat=f"{norm}:{WIDEST[norm]:g}")
    target = (Y + 1) % 4
    x_adv, distance = attack.distances(MODEL, X, Y, target=target)
    assert distance.isfinite().all() and torch.equal(MODEL(x_adv).argmax(1), target)
    logits = MODEL(X).detach().gather(1, torch.stack([Y, target], 1))
    least = (logits[:, 0] - logits[:, 1]) / BALLS[DUAL[norm]].size(MODEL.slope(Y, target))
    assert (distance > 0.999 * least).all() and (distance / least).median() < 1.5
    for how in ("random", "least_likely", "runner_up"):
        found = dataclasses.replace(attack, target=how).run(MODEL, X, Y)
        assert found.fooled.all() and (MODEL(found.x_adv).argmax(1) != Y).all()
    two = Linear()
    y, _ = classified(two, X)
    aimed, free = attack.distances(two, X, y, target=1 - y)[1], attack.distances(two, X, y)[1]
    assert torch.allclose(aimed, free), "of two classes there is one to aim at"


@every_norm
@pytest.mark.parametrize("target", [None, "random"])
def test_the_batch_does_not_matter(norm, target):
    attack = MinimumNorm(threat=f"{norm}:0.1", target=target, steps=20)
    keys = torch.arange(24) + 5
    whole = attack.run(MODEL, X, Y, keys=keys)
    parts = [attack.run(MODEL, X[rows], Y[rows], keys=keys[rows]) for rows in (slice(0, 1), slice(1, 9), slice(9, 24))]
    for name in ("x_adv", "first_loss", "best_loss"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.allclose(joined, getattr(whole, name), atol=1e-4), name
    assert torch.equal(torch.cat([part.fooled for part in parts]), whole.fooled)


def test_shapes_and_labels():
    soft = nn.functional.one_hot(Y, 4).float() * 0.9 + 0.025
    attack = MinimumNorm(threat="l2:0.3", steps=5)
    assert torch.equal(attack(MODEL, X, soft), attack(MODEL, X, Y))
    with torch.inference_mode():
        assert attack(MODEL, X.clone(), Y.clone(), target=(Y + 1) % 4).shape == (24, *SHAPE)
        attack.distances(MODEL, X.clone(), Y.clone(), target=(Y + 1) % 4)
    assert attack(MODEL, X[:1], labels(1)).shape == (1, *SHAPE)


@pytest.mark.parametrize(
    "settings", [{"threat": "linf:0.1"}, {"threat": "l2:1"}, {"threat": "l1:1", "target": "random"}], ids=str
)
def test_the_host_never_waits_for_the_device(settings):
    """Tensors on the meta device have no values: whoever asks for one is refused."""
    x, y = torch.empty(3, *SHAPE, device="meta"), torch.empty(3, dtype=torch.int64, device="meta")
    found = MinimumNorm(steps=4, **settings).search(Linear(classes=4).to("meta"), x, y)
    assert found.x_adv.shape == x.shape


def test_it_is_a_value_by_name():
    attack = choose(attacks, {"name": "fmn", "threat": "l1:3", "steps": 50})
    assert attack == MinimumNorm(threat="l1:3", steps=50) and choose(attacks, plain(attack)) == attack


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"steps": 0}, "at least 1"),
        ({"relative_step": 0}, "relative_step must be positive"),
        ({"gamma": 1.5}, "gamma must fall"),
        ({"gamma": 0.01, "final_gamma": 0.05}, "gamma must fall"),
        ({"final_gamma": 0}, "gamma must fall"),
        ({"target": "any"}, "target'"),
        ({"threat": None}, "threat"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        MinimumNorm(**{"threat": "linf:0.1", **settings})
