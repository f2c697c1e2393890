"""FAB: the nearest point of the boundary of linear models, in closed form, and the paper's loop, spelt out."""

import dataclasses

import pytest
import torch
from linear_models import Linear, best_gain, images
from torch import nn

from hardtack.attacks.fab import FAB
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import Cost, NewItems
from hardtack.attacks.pool.verifier import Verifier
from hardtack.attacks.targets import ranking
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat

NORMS = ["linf", "l2", "l1"]
every_norm = pytest.mark.parametrize("norm", NORMS)
both_forms = pytest.mark.parametrize("fused", [False, True])
CPU = Runtime(device="cpu", compile=False)


class Smooth(nn.Module):
    """A curved boundary: one hidden layer of softplus units."""

    def __init__(self, classes=4, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(60, 24), nn.Softplus(), nn.Linear(24, classes))
        for parameter in self.body.parameters():
            parameter.data *= 2

    def forward(self, x):
        return self.body(x)


class Counting(nn.Module):
    """Counts images that pass through, and those of them that wanted a gradient."""

    def __init__(self, model):
        super().__init__()
        self.model, self.forwards, self.with_gradient = model, 0, 0

    def forward(self, x):
        self.forwards += len(x)
        self.with_gradient += len(x) * x.requires_grad
        return self.model(x)


def work_of(model, x, y, *, steps, target=None, restart=0):
    n = len(x)
    with torch.no_grad():
        clean = model(x)
    target = torch.full((n,), -1) if target is None else target
    never, keys = torch.zeros(n, dtype=torch.bool), torch.arange(n)
    return NewItems(x, y, target, keys, torch.full((n,), restart), torch.full((n,), steps), clean, x, never, keys)


def searched(attack, model, x, y, **given):
    """The state after a whole try, wherever the pool would have stopped."""
    state = attack.begin(work_of(model, x, y, steps=attack.steps, **given))
    for _ in range(attack.length(attack.steps)):
        assert not state["done"].any()
        state = state | attack.advance(model, state)
    assert state["done"].all()
    return state


def smallest(model, x, y, norm):
    """The size of the smallest perturbation that takes a two-class linear model to its boundary, by bisection."""
    with torch.no_grad():
        logits = model(x).double()
    missing = (logits.gather(1, y[:, None]) - logits.gather(1, 1 - y[:, None]))[:, 0]
    low, high = torch.zeros(len(x)).double(), torch.full((len(x),), 60.0).double()
    for _ in range(40):
        middle = (low + high) / 2
        enough = best_gain(model.slope(y), x, middle, norm) >= missing
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high.float()


# ---------------------------------------------------------------- closed forms


@every_norm
@both_forms
@pytest.mark.parametrize("kind", ["grey", "active box"])
def test_two_iterations_find_the_nearest_point_of_a_linear_boundary(norm, fused, kind):
    model, x = Linear(), images(kind, 8)
    y = model(x).argmax(dim=1)
    optimum = smallest(model, x, y, norm)
    attack = FAB(threat=Threat(norm, "0.001"), steps=1, fused=fused)
    size = searched(attack, model, x, y)["size"]
    assert (size >= optimum * 0.9999).all() and (size <= optimum * 1.0501).all(), "one step, and a twentieth too far"
    again = searched(dataclasses.replace(attack, steps=6), model, x, y)["size"]
    assert (again >= optimum * 0.9999).all() and (again <= optimum * 1.011).all()


@every_norm
def test_eps_decides_only_what_counts(norm):
    model, x = Linear(), images("active box", 12)
    y = model(x).argmax(dim=1)
    optimum = smallest(model, x, y, norm)
    eps = float(optimum.median()) * 1.02
    assert (((optimum / eps) < 0.985) | (optimum > eps)).all(), "no image sits on the fence"
    outcome = FAB(threat=Threat(norm, eps), steps=8).run(model, x, y)
    assert torch.equal(outcome.fooled, optimum < eps) and outcome.fooled.any() and not outcome.fooled.all()
    assert Threat(norm, eps).contains(outcome.x_adv, x).all()


@every_norm
def test_the_nearest_boundary_need_not_belong_to_the_likeliest_class(norm):
    """Class 1 is the runner-up but its logit hardly moves; class 2 lies lower on a steep slope."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 3))
    direction = torch.linspace(0.5, 1.5, 60)
    model[1].weight.data = torch.stack([torch.zeros(60), 0.001 * direction, direction])
    model[1].bias.data = torch.tensor([0.0, -0.1, -1.0]) - model[1].weight.data @ torch.full((60,), 0.5)
    x, y = torch.full((3, 3, 4, 5), 0.5), torch.zeros(3, dtype=torch.int64)
    expected = 1 / {"linf": direction.sum(), "l2": direction.norm(), "l1": direction.max()}[norm]
    attack = FAB(threat=Threat(norm, "0.001"), steps=4)
    found = searched(attack, model, x, y)["size"]
    if norm != "l1":  # in l1 a single pixel does not have the room
        assert torch.allclose(found, expected.expand(3), rtol=0.01)
    blind = searched(dataclasses.replace(attack, candidates=1), model, x, y)["size"]
    assert (blind > 2 * found).all()


# ---------------------------------------------------------------- the paper's loop


def reference(model, x, y, target, norm, steps):
    """One image, float64, two questions per iteration, projections by bisection: the smallest size found."""
    x = x.double()

    def logits(z):
        return model(z[None])[0]

    def shortest(z, w, gap):
        towards = w * gap.sign()
        room = torch.where(towards > 0, 1 - z, z) * (w != 0)
        weight = towards.abs()
        if norm == "l1":
            order = weight.flatten().argsort(descending=True)
            moved, left = torch.zeros_like(room).flatten(), gap.abs()
            for pixel in order.tolist():
                if weight.flatten()[pixel] > 0 and left > 0:
                    moved[pixel] = min(room.flatten()[pixel], left / weight.flatten()[pixel])
                    left = left - moved[pixel] * weight.flatten()[pixel]
            return towards.sign() * moved.reshape(room.shape)
        speed = (weight > 0).double() if norm == "linf" else weight
        if (weight * room).sum() <= gap.abs():
            return towards.sign() * room
        low, high = 0.0, float((room / speed.clamp_min(1e-300)).max()) + 1
        for _ in range(60):
            middle = (low + high) / 2
            over = (weight * torch.minimum(middle * speed, room)).sum() > gap.abs()
            low, high = (low, middle) if over else (middle, high)
        return towards.sign() * torch.minimum(low * speed, room)

    def size(d):
        return {"linf": d.abs().max(), "l2": d.norm(), "l1": d.abs().sum()}[norm]

    best, point = float("inf"), x.clone()
    for _ in range(steps):
        z = point.clone().requires_grad_()
        rise = logits(z)[target] - logits(z)[y]
        (w,) = torch.autograd.grad(rise, z)
        rise = rise.detach()
        near, far = shortest(point, w, -rise), shortest(x, w, (w * (point - x)).sum() - rise)
        a, b = size(near).clamp_min(1e-8), size(far).clamp_min(1e-8)
        share = min(float(a / (a + b)), 0.1)
        point = ((point + 1.05 * near) * (1 - share) + (x + 1.05 * far) * share).clamp(0, 1)
        with torch.no_grad():
            if logits(point).argmax() != y:
                best = min(best, float(size(point - x)))
                point = x + 0.9 * (point - x)
    return best


@every_norm
def test_the_papers_loop_spelt_out_finds_the_same(norm):
    model, x = Smooth(), images("active box", 20)
    y = model(x).argmax(dim=1)
    target = (y + 1 + torch.arange(20) % 3) % 4
    attack = FAB(threat=Threat(norm, "0.001"), targets=1, steps=12)
    found = searched(attack, model, x, y, target=target)["size"]
    slow = Smooth().double()
    expected = torch.tensor(
        [reference(slow, *row, norm, attack.steps) for row in zip(x, y.tolist(), target.tolist(), strict=True)]
    )
    assert ((found / expected - 1).abs() < 0.01).sum() >= 19
    eps = float(expected.median()) * 1.003
    assert ((found < eps) == (expected < eps)).sum() >= 19
    fused = searched(dataclasses.replace(attack, fused=True), model, x, y, target=target)["size"]
    assert (fused / expected).mean() < 1.01 and ((fused / expected - 1).abs() < 0.1).sum() >= 18


@pytest.mark.parametrize("broken", [{"beta": 1.0}, {"steps": 1}])
def test_without_the_way_back_or_the_iterations_the_point_found_is_farther(broken):
    model, x = Smooth(), images("active box", 20)
    y = model(x).argmax(dim=1)
    target = (y + 1 + torch.arange(20) % 3) % 4
    attack = FAB(threat=Threat("l2", "0.001"), targets=1, steps=12)
    whole = searched(attack, model, x, y, target=target)["size"]
    less = searched(dataclasses.replace(attack, **broken), model, x, y, target=target)["size"]
    assert (less > whole * 1.002).float().mean() > 0.5


# ---------------------------------------------------------------- passes, batches, restarts


@pytest.mark.parametrize(
    "settings, forwards, backwards",
    [({}, 2 * 7, 7), ({"fused": True}, 8, 8), ({"targets": 3}, 3 * 2 * 7, 3 * 7)],
)
def test_passes_of_an_image_that_stands(settings, forwards, backwards):
    model, x = Smooth(), images("grey", 5)
    y = model(x).argmax(dim=1)
    counting = Counting(model)
    attack = FAB(threat=Threat("linf", "0.0001"), steps=7, **settings)
    assert not attack.run(counting, x, y).fooled.any()
    clean = 1
    assert counting.forwards == 5 * (forwards + clean) and counting.with_gradient == 5 * backwards


def test_what_a_step_costs():
    attack = FAB(threat=Threat("linf", "0.1"))
    assert attack.cost(10) == Cost(2, 9) and attack.cost(1000) == Cost(2, 10) and attack.cost(2) == Cost(2, 1)
    assert dataclasses.replace(attack, candidates=4).cost(1000) == Cost(2, 4)
    assert dataclasses.replace(attack, targets=9, fused=True).cost(1000) == Cost(1, 1)


def pooled(attack, model, x, y, keys, batch_size):
    verifier = Verifier(model, CPU)
    pool = Pool(model, CPU, batch_size=batch_size, verifier=verifier)
    return pool.run(attack, AttackInputs(x, y, keys, verifier.logits(x)))


@every_norm
@pytest.mark.parametrize("settings", [{}, {"targets": 3, "restarts": 2}, {"fused": True}])
def test_neither_slots_nor_order_matter(norm, settings):
    model, x = Smooth(), images("active box", 10)
    y, keys = model(x).argmax(dim=1), torch.arange(10) * 7
    size = searched(FAB(threat=Threat(norm, "0.001"), steps=6), model, x, y)["size"]
    attack = FAB(threat=Threat(norm, float(size.median()) * 1.01), steps=6, **settings)
    whole = pooled(attack, model, x, y, keys, 10)
    assert whole.broken.any() and not whole.broken.all()
    few = pooled(attack, model, x, y, keys, 3)
    assert (whole.broken == few.broken).all() and (whole.successful == few.successful).all()
    assert torch.allclose(whole.x_adv, few.x_adv, atol=1e-4)
    order = torch.tensor([3, 9, 0, 5, 2, 8, 1, 7, 4, 6])
    mixed = pooled(attack, model, x[order], y[order], keys[order], 4)
    assert (mixed.broken == whole.broken[order.numpy()]).all()
    assert torch.allclose(mixed.x_adv, whole.x_adv[order], atol=1e-4)


@every_norm
def test_only_later_restarts_begin_with_noise(norm):
    model, x = Linear(), images("grey", 4)
    y = model(x).argmax(dim=1)
    attack = FAB(threat=Threat(norm, "0.1"))
    assert torch.equal(attack.begin(work_of(model, x, y, steps=3))["point"], x)
    start = attack.begin(work_of(model, x, y, steps=3, restart=1))["point"]
    assert torch.allclose(attack.threat.size(start - x), torch.tensor(0.05), rtol=1e-3)


@both_forms
def test_reaching_a_class_is_more_than_leaving_one(fused):
    model, x = Smooth(), images("active box", 12)
    y = model(x).argmax(dim=1)
    target = ranking(model(x), y)[:, 1]
    attack = FAB(threat=Threat("l2", "3"), steps=20, fused=fused)
    outcome = attack.run(model, x, y, target=target)
    predicted = model(outcome.x_adv).argmax(dim=1)
    assert torch.equal(outcome.fooled, predicted == target) and 1 <= outcome.fooled.sum() < 12
    assert ((predicted != y) & (predicted != target)).any(), "which leaving the label alone would have counted"


def test_a_model_that_hides_its_gradient_is_flagged():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Linear()

        def forward(self, x):
            return self.model(x.detach())

    model, x = Hidden(), images("grey", 4)
    y = model(x).argmax(dim=1)
    for targets in (0, 1):
        outcome = FAB(threat=Threat("linf", "0.1"), steps=3, targets=targets).run(model, x, y)
        assert outcome.zero_gradient.all() and not outcome.fooled.any() and torch.equal(outcome.x_adv, x)


@pytest.mark.parametrize("settings", [{}, {"targets": 2}, {"fused": True, "targets": 2}])
def test_a_step_is_one_graph(settings):
    """No value is looked at on the way: what torch.compile traces whole, a CUDA graph can replay."""
    model, x = Smooth().requires_grad_(False), images("active box", 3)
    y = model(x).argmax(dim=1)
    attack = FAB(threat=Threat("l2", "0.5"), **settings)
    state = attack.begin(work_of(model, x, y, steps=3, target=(y + 1) % 4))
    compiled = torch.compile(lambda state: attack.advance(model, state), fullgraph=True, dynamic=False, backend="eager")
    made, expected = compiled(state), attack.advance(model, state)
    assert made.keys() == expected.keys()
    assert all(torch.allclose(made[name].float(), expected[name].float(), atol=1e-5) for name in made)


@pytest.mark.parametrize(
    "bad", [{"steps": 0}, {"candidates": 0}, {"beta": 1.5}, {"alpha_max": -1.0}, {"overshoot": 0.5}]
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(UserError, match=next(iter(bad))):
        FAB(threat=Threat("linf", "0.1"), **bad)
