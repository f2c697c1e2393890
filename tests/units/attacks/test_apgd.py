"""APGD against a slow telling of it, one image at a time, and against optima that are known; mutants must fail.

The reference below follows the papers and the constants of the published implementation in plain loops over float64
numbers; nothing is shared with the attack but the network. Mutants are made from the real thing by changing one part.
"""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from linear_models import SHAPE, Linear, best_gain, gain, images
from torch import nn

from hardtack.attacks import APGD
from hardtack.attacks.apgd import _checkpoints
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import NewItems
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime

CPU = Runtime(device="cpu", compile=False)


class Curved(nn.Module):
    """A small smooth network in float64, curved enough for steps to be too long."""

    def __init__(self, classes=6, seed=0, rough=2.5):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.randn(60, 24, generator=generator, dtype=torch.float64) * rough / 60**0.5
        self.last = torch.randn(24, classes, generator=generator, dtype=torch.float64)

    def forward(self, x):
        return torch.tanh((x.flatten(1) - 0.5) @ self.first) @ self.last


NET = Curved()
COUNT = 6
X = images("active box", count=COUNT).double()
Y = NET(X).argmax(dim=1)
EPS = {"linf": 0.08, "l2": 0.5, "l1": 3.0}


# ---------------------------------------------------------------- the reference


def loss_and_gradient(name, x, y, target):
    """The loss of one image (a flat array) and its gradient."""
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    z = NET(leaf.reshape(1, *SHAPE))[0]
    order = z.sort(descending=True).values
    if name == "ce":
        value = z.exp().sum().log() - z[y]
    elif target >= 0:
        value = -(z[y] - z[target]) / (order[0] - (order[2] + order[3]) / 2 + 1e-12)
    else:
        others = torch.cat([z[:y], z[y + 1 :]])
        value = -(z[y] - others.max()) / (order[0] - order[2] + 1e-12)
    value.backward()
    return value.item(), leaf.grad.numpy()


def clip(point):
    return np.minimum(np.maximum(point, 0.0), 1.0)


def into_ball(point, x, eps, norm, official):
    delta = point - x
    if norm == "linf":
        return clip(x + np.minimum(np.maximum(delta, -eps), eps))
    if norm == "l2" and official:  # scaled, then clipped
        length = math.sqrt((delta**2).sum())
        return clip(x + delta * min(1.0, eps / max(length, 1e-300)))
    size = (lambda d: math.sqrt((d**2).sum())) if norm == "l2" else (lambda d: np.abs(d).sum())

    def inside(t):  # l2: the share of the way; l1: by how much every pixel is shortened
        if norm == "l2":
            return clip(x + t * delta)
        return clip(x + np.sign(delta) * np.maximum(np.abs(delta) - t, 0.0))

    low, high = 0.0, 1.0 if norm == "l2" else np.abs(delta).max()
    best = high if norm == "l2" else low
    if size(inside(best) - x) <= eps:
        return inside(best)
    for _ in range(200):
        middle = (low + high) / 2
        if (size(inside(middle) - x) <= eps) == (norm == "l2"):
            low = middle
        else:
            high = middle
    return inside(low if norm == "l2" else high)


def climb(x, start, y, target, *, eps, steps, norm, loss, official):
    """All iterates, all losses, the best loss, and how often the step was halved."""
    at = functools.partial(loss_and_gradient, loss, y=y, target=target)
    point = previous = start
    value, gradient = at(point)
    points, values = [point], [value]
    best, best_value, best_gradient = point, value, gradient
    length, halved, was_halved, value_then = 2 * eps, 0, True, value
    gap, since, marks = max(int(0.22 * steps), 1), 0, []
    for number in range(steps):
        way = np.sign(gradient) if norm == "linf" else gradient / math.sqrt((gradient**2).sum())
        z = into_ball(point + length * way, x, eps, norm, official)
        share = 1.0 if number == 0 else 0.75
        new = into_ball(point + share * (z - point) + (1 - share) * (point - previous), x, eps, norm, official)
        previous, point = point, new
        value, gradient = at(point)
        points.append(point)
        before = 0.0 if official and number == 0 else values[-1]
        values.append(value)
        marks.append(value > before)
        if value > best_value:
            best, best_value, best_gradient = point, value, gradient
        since += 1
        if since == gap:
            seldom = sum(marks[-gap:]) <= 0.75 * gap
            stuck = not was_halved and value_then >= best_value
            was_halved, value_then = seldom or stuck, best_value
            if was_halved:
                halved += 1
                length, point, gradient = length / 2, best, best_gradient
            since, gap = 0, max(gap - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1))
    return points, values, best, best_value, halved


def climb_l1(x, start, y, target, *, eps, steps, loss, warm):
    at = functools.partial(loss_and_gradient, loss, y=y, target=target)
    point = start
    value, gradient = at(point)
    points, values = [point], [value]
    best, best_value, best_gradient = point, value, gradient
    pixels, length, back = len(x), eps, 0
    support = (point != x).sum()
    dense, support = (support / pixels / 1.5, support) if warm else (0.2, pixels)
    period = max(int(0.04 * steps), 1)
    for number in range(1, steps + 1):
        cut = int(min(max((1 - dense) * pixels, 0), pixels - 1))
        chosen = np.abs(gradient) >= np.sort(np.abs(gradient))[cut]
        sign = np.sign(gradient) * chosen
        point = into_ball(point + length * sign / (np.abs(sign).sum() + 1e-10), x, eps, "l1", False)
        value, gradient = at(point)
        points.append(point)
        values.append(value)
        if value > best_value:
            best, best_value, best_gradient = point, value, gradient
        if number % period == 0:
            now = (best != x).sum()
            if now / support < 0.95:
                length, point, gradient, back = eps, best, best_gradient, back + 1
            else:
                length = min(max(length / 1.5, eps / 10), eps)
            dense, support = now / pixels / 1.5, now
    return points, values, best, best_value, back


def climb_widened(x, start, y, target, *, eps, steps, loss):
    third = math.ceil(0.3 * steps)
    points, values, back = [], [], 0
    for radius, length in ((3 * eps, third), (2 * eps, third), (eps, steps - 2 * third)):
        start = into_ball(start, x, radius, "l1", False)
        more, heights, start, top, times = climb_l1(x, start, y, target, eps=radius, steps=length, loss=loss, warm=True)
        points, values, back = points + more, values + heights, back + times
    return points, values, start, top, back


# ---------------------------------------------------------------- ours, pass by pass


def work(x, y, target, steps, start=None, model=NET):
    n = len(x)
    return NewItems(
        x=x, y=y, target=target, keys=torch.arange(n), image_keys=torch.arange(n),
        restart=torch.zeros(n, dtype=torch.int64),
        steps=torch.full((n,), steps), clean=model(x), start=x if start is None else start,
        warm=torch.zeros(n, dtype=torch.bool),
    )  # fmt: skip


def walk(attack, x, y, target, start, model=NET):
    """(passes×N×…) points and losses, and the final state."""
    state = attack.begin(work(x, y, target, attack.steps, start, model))
    state |= dict.fromkeys(("point", "previous", "best"), start)
    points, losses = [], []
    for _ in range(attack.length(attack.steps)):
        assert not state["done"].any()
        points.append(state["point"])
        state = state | attack.advance(model, state)
        losses.append(state["loss"])
    assert state["done"].all()
    return torch.stack(points), torch.stack(losses), state


def starts(norm, radius=1.0, seed=5):
    noise = np.random.default_rng(seed).standard_normal((COUNT, 60))
    flat = X.flatten(1).numpy()
    rows = [
        into_ball(x + 3 * EPS[norm] * n, x, radius * EPS[norm], norm, False) for x, n in zip(flat, noise, strict=True)
    ]
    return torch.from_numpy(np.stack(rows)).reshape(X.shape)


LOSSES = {"ce": ("ce", 0), "dlr": ("dlr", 0), "targeted dlr": ("dlr", 1)}


def aims(kind):
    """Targeted: towards the third choice."""
    return NET(X).argsort(dim=1, descending=True)[:, 2] if LOSSES[kind][1] else torch.full((COUNT,), -1)


def compare(attack, kind, start, reference):
    """Hold every pass to the reference; returns how often that went back to its best point."""
    target = aims(kind)
    points, losses, state = walk(attack, X, Y, target, start)
    total = 0
    for row in range(COUNT):
        flat = [part[row].flatten().numpy().copy() for part in (X, start)]
        expected, heights, _, top, times = reference(*flat, int(Y[row]), int(target[row]))
        assert np.allclose(points[:, row].flatten(1).numpy(), np.stack(expected), atol=1e-7), row
        assert np.allclose(losses[:, row].numpy(), heights, rtol=1e-6, atol=1e-7)
        assert state["best_loss"][row].item() == pytest.approx(top, rel=1e-6, abs=1e-7)
        total += times
    return total


@pytest.mark.parametrize("kind, steps", [*((kind, 25) for kind in LOSSES), ("ce", 10), ("dlr", 100)])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_iterates_are_the_references(norm, kind, steps):
    loss = LOSSES[kind][0]
    for official in (True, False) if steps < 100 else (True,):
        attack = APGD(threat=f"{norm}:{EPS[norm]}", loss=loss, steps=steps, official=official)
        reference = functools.partial(climb, eps=EPS[norm], steps=steps, norm=norm, loss=loss, official=official)
        halved = compare(attack, kind, starts(norm), reference)
        assert steps < 100 or halved > COUNT, "steps must be halved in this example, and points taken back"


@pytest.mark.parametrize("kind, steps", [*((kind, 25) for kind in LOSSES), ("ce", 10), ("targeted dlr", 100)])
def test_l1_iterates_are_the_references(kind, steps):
    loss, eps = LOSSES[kind][0], EPS["l1"]
    attack = APGD(threat=f"l1:{eps}", loss=loss, steps=steps, official=True)
    back = compare(attack, kind, starts("l1"), functools.partial(climb_l1, eps=eps, steps=steps, loss=loss, warm=False))
    assert back > 0
    wide = dataclasses.replace(attack, widened=True)
    back = compare(
        wide, kind, starts("l1", 3.0, seed=6), functools.partial(climb_widened, eps=eps, steps=steps, loss=loss)
    )
    assert back > 0


def test_checkpoints_of_a_hundred_steps():
    gaps = _checkpoints(100, "linf")
    assert [step for step, gap in enumerate(gaps) if gap] == [22, 41, 57, 70, 80, 87, 93, 99]
    assert [gap for gap in gaps if gap] == [22, 19, 16, 13, 10, 7, 6, 6]
    assert [step for step, gap in enumerate(_checkpoints(100, "l1")) if gap] == list(range(4, 101, 4))
    assert [step for step, gap in enumerate(_checkpoints(40, "l1")) if gap] == list(range(1, 41))
    assert all(gap >= 1 for gap in _checkpoints(3, "l2")[1:])


def test_a_halved_step_begins_again_at_the_best_point():
    """After a checkpoint at which the step was halved the next move starts from the best point seen, not the last."""
    attack = APGD(threat="linf:0.08", steps=100)
    points, losses, _ = walk(attack, X, Y, aims("ce"), starts("linf"))
    state = attack.begin(work(X, Y, aims("ce"), 100)) | {n: starts("linf") for n in ("point", "previous", "best")}
    jumps = 0
    for step in range(101):
        before = state
        state = state | attack.advance(NET, state)
        halved = state["length"] < before["length"] if step else torch.zeros(COUNT, dtype=torch.bool)
        assert not halved.any() or step in (22, 41, 57, 70, 80, 87, 93, 99)
        assert (state["length"][halved] == before["length"][halved] / 2).all()
        best = losses[: step + 1].argmax(dim=0)
        for row in halved.nonzero()[:, 0].tolist() if step < 100 else []:
            assert torch.equal(state["previous"][row], points[best[row], row])
            jumps += int(best[row] < step)
    assert jumps > 0


def test_the_first_comparison_is_with_zero_only_where_official():
    """dlr is negative while the answer is right: compared with zero, its first rise does not count."""
    start = starts("linf")
    made = {}
    for official in (True, False):
        attack = APGD(threat="linf:0.02", loss="dlr", steps=10, official=official)
        near = torch.minimum(torch.maximum(start, X - 0.02), X + 0.02)
        _, losses, _ = walk(attack, X, Y, aims("dlr"), near)
        state = attack.begin(work(X, Y, aims("dlr"), 10)) | dict.fromkeys(("point", "previous", "best"), near)
        for _ in range(3):
            state = state | attack.advance(NET, state)
        made[official] = losses, state["length"]
    rises = (made[True][0][:3].diff(dim=0) > 0).all(dim=0) & (made[True][0][1] < 0)
    assert rises.any(), "some loss rose twice from below zero"
    assert (made[True][1][rises] == 0.02).all() and (made[False][1][rises] == 0.04).all()


def test_starts_lie_on_the_sphere():
    x = images("grey", count=32)
    for norm, eps in (("linf", 0.03), ("l2", 0.3), ("l1", 2.0)):
        attack = APGD(threat=f"{norm}:{eps}")
        point = attack.begin(work(x.double(), torch.zeros(32, dtype=torch.int64), -torch.ones(32).long(), 100))["point"]
        assert attack.threat.size(point - x) == pytest.approx(eps, rel=1e-5)
        assert len({tuple(row) for row in (point - x).flatten(1).tolist()}) == 32
        assert point.min() >= 0 and point.max() <= 1


# ---------------------------------------------------------------- known optima


class Never(nn.Module):
    """Two classes: the first is always right, and `height` says by how little. So the closest point is the highest."""

    def __init__(self, height, ceiling):
        super().__init__()
        self.height, self.ceiling = height, ceiling

    def forward(self, x):
        height = self.height(x.flatten(1))
        return torch.stack([torch.full_like(height, self.ceiling), height], dim=1)


def highest(attack, height, x, ceiling=1e4):
    """The height that the attack reaches, one for each image (float64)."""
    model = Never(height, ceiling)
    y = torch.zeros(len(x), dtype=torch.int64)
    found = attack.run(model, x, y)
    assert not found.fooled.any()
    assert attack.threat.contains(found.x_adv, x).all()
    return height(found.x_adv.flatten(1)), found.x_adv


@pytest.mark.parametrize("kind", ["grey", "active box", "corners"])
@pytest.mark.parametrize("norm, eps, share", [("linf", 0.2, 0.999), ("l2", 0.8, 0.999), ("l1", 4.0, 0.97)])
def test_linear_models_are_climbed_to_the_top(norm, eps, share, kind):
    if (norm, kind) == ("l1", "corners"):
        share = 0.85
    slope = Linear().slope(torch.zeros(16, dtype=torch.int64))
    x = images(kind)
    for widened in (False, True) if norm == "l1" else (False,):
        attack = APGD(threat=f"{norm}:{eps}", loss="margin", widened=widened)
        _, x_adv = highest(attack, lambda z: z @ slope[0].flatten(), x)
        best = best_gain(slope, x, eps, norm)
        assert (gain(slope, x, x_adv) >= share * best).all()
        assert (gain(slope, x, x_adv) <= best * (1 + 1e-5) + 1e-6).all()


def test_l1_as_published_spends_steps_on_pixels_that_the_box_holds():
    slope, x = Linear().slope(torch.zeros(16, dtype=torch.int64)), images("corners")
    best = best_gain(slope, x, 4.0, "l1")
    ours, published = (
        highest(APGD(threat="l1:4", loss="margin", official=official), lambda z: z @ slope[0].flatten(), x)[1]
        for official in (False, True)
    )
    assert (gain(slope, x, ours) / best).min() > 0.85 > (gain(slope, x, published) / best).min()


def test_the_box_is_kept_and_matters():
    class Boundless(APGD):
        def _project(self, z, x, eps):
            return torch.minimum(torch.maximum(z, x - self.threat.radius), x + self.threat.radius)

    slope = Linear().slope(torch.zeros(16, dtype=torch.int64))
    x = images("active box")
    model = Never(lambda z: z @ slope[0].flatten(), 1e4)
    y = torch.zeros(16, dtype=torch.int64)
    settings = {"threat": "linf:0.2", "loss": "margin", "steps": 10}
    inside, outside = (kind(**settings)(model, x, y) for kind in (APGD, Boundless))
    assert inside.min() >= 0 and inside.max() <= 1
    assert outside.min() < -0.1 and outside.max() > 1.1, "the mutant this test is for"


@pytest.mark.parametrize("norm, eps, share", [("linf", 0.1, 0.999), ("l2", 0.5, 0.999), ("l1", 2.0, 0.95)])
def test_a_convex_bowl_is_climbed_to_its_rim(norm, eps, share):
    """Height ‖x − c‖² with c far away: the top is the far corner, the far point of the sphere, or the best pixel."""
    generator = torch.Generator().manual_seed(3)
    x = 0.3 + 0.4 * torch.rand(16, *SHAPE, generator=generator)
    centre = torch.where(torch.rand(60, generator=generator) < 0.5, -1.0, 2.0)
    centre = centre + torch.rand(60, generator=generator) * 0.5
    away = x.flatten(1) - centre
    if norm == "linf":
        top = x.flatten(1) + eps * away.sign()
    elif norm == "l2":
        top = x.flatten(1) + eps * away / away.norm(dim=1, keepdim=True)
    else:  # as many of the farthest pixels as the box leaves room in, one after the other
        top = x.flatten(1).clone()
        for row in range(16):
            left = eps
            for place in away[row].abs().argsort(descending=True).tolist():
                room = 1 - top[row, place] if away[row, place] > 0 else top[row, place]
                move = min(left, room.item())
                top[row, place] += move * away[row, place].sign()
                left -= move
    if norm != "l1":
        assert top.min() >= 0 and top.max() <= 1

    def height(z):
        return ((z - centre) ** 2).sum(dim=1)

    reached, _ = highest(APGD(threat=f"{norm}:{eps}", loss="margin"), height, x)
    clean, best = height(x.flatten(1)), height(top)
    assert (reached - clean >= share * (best - clean)).all()


def tent(scale):
    """Height −Σ w·|x − t|: a roof whose ridge lies inside the ball, at a known point."""
    generator = torch.Generator().manual_seed(7)
    x = 0.3 + 0.4 * torch.rand(8, *SHAPE, generator=generator)
    ridge = x[0].flatten() * 0 + 0.5
    x = ridge.reshape(SHAPE) + scale * (2 * torch.rand(x.shape, generator=generator) - 1)
    weight = 0.2 + torch.rand(60, generator=generator)

    def height(z):
        return -(weight * (z - ridge).abs()).sum(dim=1)

    return height, x, ridge


def test_a_roof_is_climbed_to_its_ridge():
    """Piecewise linear: steps of 2 eps jump over the ridge for ever, only shorter ones come near it."""
    height, x, _ = tent(0.06)
    clean = height(x.flatten(1))
    reached, _ = highest(APGD(threat="linf:0.1", loss="margin"), height, x)
    assert (reached >= 0.03 * clean).all(), "all but three hundredths of the way"
    worse, _ = highest(NeverHalved(threat="linf:0.1", loss="margin"), height, x)
    assert (worse < 0.03 * clean).all()


class NeverHalved(APGD):
    """The first step for ever; points are still taken back."""

    def _checkpoint(self, state, at, loss):
        back, changes = super()._checkpoint(state, at, loss)
        return back, changes | {"length": torch.full_like(loss, 2 * self.threat.radius)}


# ---------------------------------------------------------------- mutants

CENTRE = 0.5 + 0.1 * (2 * torch.rand(8, *SHAPE, generator=torch.Generator().manual_seed(0)) - 1)


def valley(z):
    """Thirty narrow valleys bent like v = u² (Rosenbrock's), upside down; the tops are at 0, inside linf:0.2."""
    u, v = (z[:, 0::2] - 0.5) / 0.2, (z[:, 1::2] - 0.5) / 0.2
    return -((0.9 - u) ** 2 + 100 * (v - u * u) ** 2).sum(dim=1) / 30


def ridge(z):
    """A turned paraboloid, a hundred times as steep one way as the other; the top, 0, lies inside l2:1."""
    turn = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(0)))[0]
    return -(torch.logspace(0, 2, 60) * ((z - 0.55) @ turn) ** 2).sum(dim=1)


def lock(z):
    """Forty bolts, each of which can be felt only once those before it are all the way up (linf:0.1 around a half)."""
    up = ((z[:, :40] - 0.4) / 0.2).clamp(0, 1)
    free = torch.cat([torch.ones_like(up[:, :1]), (up[:, :-1] >= 0.99).to(up.dtype)], dim=1).cumprod(dim=1)
    return (up * free).sum(dim=1)


def mean_height(height, threat, kind=APGD, x=CENTRE, **settings):
    return highest(kind(threat=threat, loss="margin", **settings), height, x, ceiling=50.0)[0].mean().item()


def test_ten_steps_are_not_a_hundred():
    assert mean_height(valley, "linf:0.2") > -1.1
    assert mean_height(valley, "linf:0.2", steps=10) < -2


def test_without_momentum_a_ridge_is_climbed_worse():
    assert mean_height(ridge, "l2:1") > -0.004
    assert mean_height(ridge, "l2:1", momentum=1.0) < -0.005


def test_a_step_that_is_never_or_too_rarely_halved_misses_the_top():
    assert mean_height(ridge, "l2:1") > -0.1
    assert mean_height(ridge, "l2:1", rho=0.0) < -0.2
    assert mean_height(ridge, "l2:1", NeverHalved) < -1


def test_a_step_that_is_halved_while_all_goes_well_does_not_arrive():
    x = torch.full((8, *SHAPE), 0.5)
    assert mean_height(lock, "linf:0.1", x=x) > 32
    assert mean_height(lock, "linf:0.1", x=x, rho=1.0) < 30


class LastPoint(APGD):
    """Forgets at every pass what it has found before."""

    def advance(self, model, state):
        return super().advance(model, state | {"margin": torch.full_like(state["margin"], -torch.inf)})


class Dent(nn.Module):
    """The answer is wrong only in a narrow band, from which the first step leads away."""

    def forward(self, x):
        height = x.flatten(1).mean(dim=1)
        ahead = (height - self.where).abs() < 0.0005
        return torch.stack([torch.where(ahead, -9.0, 9.0), height], dim=1)


def test_a_success_between_two_looks_is_not_lost():
    x, y = torch.full((1, *SHAPE), 0.5), torch.tensor([0])
    model = Dent()
    path = []
    model.where = 9.0
    model.register_forward_pre_hook(lambda module, given: path.append(given[0].flatten(1).mean().item()))
    attack = APGD(threat="linf:0.1", loss="margin", steps=4)
    attack(model, x, y)
    model.where = path[1]  # after the verifier's look at the clean image: the random start
    assert abs(path[1] - 0.5) > 0.001 and abs(path[2] - path[1]) > 0.01
    given = AttackInputs(x, y, torch.arange(1), model(x))
    for kind, fallen in ((APGD, True), (LastPoint, False)):
        search = kind(**{field.name: getattr(attack, field.name) for field in dataclasses.fields(attack)})
        attempts = Pool(model, CPU, 1, Verifier(model, CPU), every=5).run(search, given)
        assert attempts.broken.tolist() == [fallen], kind.__name__
        assert attempts.found_at_step.tolist() == [0 if fallen else -1]


def test_of_points_that_do_not_fool_the_best_is_returned():
    """Five steps over a roof: the last one jumps across the ridge."""
    height, x, _ = tent(0.06)
    settings = {"threat": "linf:0.1", "loss": "margin", "steps": 5}
    best, last = (highest(kind(**settings), height, x)[0].mean() for kind in (APGD, LastPoint))
    assert best > last + 0.1


# ---------------------------------------------------------------- targets, random models, refusals


def test_only_hits_of_the_target_count_where_it_is_to_be_reached():
    net = Curved(rough=4)
    x = images("active box", count=24).double()
    y, target = net(x).argmax(dim=1), net(x).argmin(dim=1)
    threat = "linf:0.04"
    reached = APGD(threat=threat, loss="ce").run(net, x, y, target=target)
    predicted = net(reached.x_adv).argmax(dim=1)
    assert torch.equal(reached.fooled, predicted == target) and 0 < reached.fooled.sum() < 24
    anywhere = APGD(threat=threat, loss="ce").run(net, x, y)
    assert anywhere.fooled.sum() > reached.fooled.sum()
    with pytest.raises(UserError, match="reach"):
        APGD(threat=threat, reach=True)(net, x, y)


def test_averaging_steadies_the_gradient_of_a_random_model():
    class Shaking(nn.Module):
        def forward(self, x):
            return Linear()(x * (1 + 2 * torch.randn_like(x)))

    x, y = images("grey", count=4), torch.zeros(4, dtype=torch.int64)

    def spread(eot):
        attack = APGD(threat="linf:0.1", loss="margin", eot=eot)
        state = attack.begin(work(x, y, -torch.ones(4).long(), 100, model=Linear()))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            drawn = torch.stack([attack._evaluate(Shaking(), state)[0].flatten(1) for _ in range(30)])
        drawn = drawn / drawn.norm(dim=2, keepdim=True)
        return (drawn - drawn.mean(dim=0)).pow(2).sum(dim=2).mean().item()

    assert spread(20) < spread(1) / 3
    assert APGD(threat="linf:0.1", eot=20).cost(10) == (20, 20)


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"steps": 0}, "at least 1"),
        ({"eot": 0}, "at least 1"),
        ({"restarts": 0}, "at least 1"),
        ({"targets": -1}, "at least 0"),
        ({"rho": 1.5}, "rho"),
        ({"momentum": 0.0}, "momentum"),
        ({"widened": True, "steps": 4}, "5 steps"),
        ({"loss": "kl"}, "loss"),
    ],
)
def test_impossible_settings_are_refused(settings, told):
    with pytest.raises(UserError, match=told):
        APGD(threat="linf:0.1", **settings)


def test_plans_name_the_number_of_steps():
    with pytest.raises(UserError, match="100 among them"):
        APGD(threat="linf:8/255", plans=(5,))
