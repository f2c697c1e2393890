"""Square Attack: where its windows lie, what they hold, and that it finds what gradients hide."""

import dataclasses
import functools
import math

import pytest
import torch
from torch import nn

from hardtack.attacks import APGD
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import Cost, NewItems
from hardtack.attacks.pool.verifier import Verifier
from hardtack.attacks.square import Square, bump, window_sides
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat

every_norm = pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
EPS = {"linf": 0.1, "l2": 1.0, "l1": 6.0}
CPU = Runtime(device="cpu", compile=False)


class Net(nn.Module):
    """Smooth, for images of any size."""

    def __init__(self, classes=5, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.Softplus(), nn.AdaptiveAvgPool2d(3))
            self.head = nn.Linear(108, classes)
        with torch.no_grad():  # no class is everyone's favourite
            self.head.bias -= self.head(self.body(torch.full((1, 3, 12, 12), 0.5)).flatten(1))[0]

    def forward(self, x):
        return 10 * self.head(self.body(x).flatten(1))


def images(count=6, shape=(3, 12, 12), seed=1):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def begun(attack, model, x, y, target=None):
    n = len(x)
    with torch.no_grad():
        clean = model(x)
    target = torch.full((n,), -1) if target is None else target
    zeros, never = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.bool)
    return attack.begin(
        NewItems(x, y, target, torch.arange(n), zeros, zeros + attack.steps, clean, x, never, torch.arange(n))
    )


def states(attack, model, x, y):
    """The state at the start and after every pass of a whole try."""
    state = begun(attack, model, x, y)
    yield state
    for _ in range(attack.length(attack.steps)):
        state = state | attack.advance(model, state)
        yield state


def make(norm, **settings):
    return Square(threat=Threat(norm, EPS[norm]), **settings)


# ---------------------------------------------------------------- inside, and ever closer


@every_norm
@pytest.mark.parametrize("size", [(17, 31), (5, 40), (8, 8), (2, 3), (1, 1)], ids=str)
def test_every_point_lies_in_ball_and_box_and_the_margin_only_rises(norm, size):
    model, x = Net(), images(4, (3, *size))
    x[0], x[1, :, : size[0] // 2] = x[0].round(), 0.0
    y = model(x).argmax(dim=1)
    attack = make(norm, steps=60)
    before, asked = None, []
    for state in states(attack, lambda z: asked.append(z) or model(z), x, y):
        if before is not None:
            assert (state["best_margin"] >= before["best_margin"]).all()
        before = state
    assert len(asked) == 62, "the clean images, the start and sixty proposals"
    assert all(attack.threat.contains(point, x).all() for point in asked[1:])
    assert torch.equal(before["closest"], before["best"]) and before["done"].all()
    wrong = model(before["best"]).masked_fill(nn.functional.one_hot(y, 5).bool(), -torch.inf).amax(dim=1)
    margin = wrong - model(before["best"]).gather(1, y[:, None])[:, 0]
    assert torch.allclose(margin, before["best_margin"], atol=1e-4)


@every_norm
def test_the_whole_budget_is_spent(norm):
    model, x = Net(), 0.5 + 0.1 * (images(4) - 0.5)
    y = model(x).argmax(dim=1)
    attack = make(norm, steps=20)
    *_, last = states(attack, model, x, y)
    assert torch.allclose(attack.threat.size(last["best"] - x), torch.tensor(EPS[norm]), rtol=1e-3)


# ---------------------------------------------------------------- windows


def share(query):
    """The share of the image under a window, as the paper's timetable has it for 10,000 queries."""
    for limit, part in ((10, 1), (50, 2), (200, 4), (500, 8), (1000, 16), (2000, 32), (4000, 64), (6000, 128)):
        if query <= limit:
            return 0.8 / part
    return 0.8 / 256 if query <= 8000 else 0.8 / 512


def changed(attack, query, x):
    """Which pixels a proposal changes when the best image is the clean one: N×H×W."""
    state = begun(attack, Net(), x, torch.zeros(len(x), dtype=torch.int64))
    return (proposed(attack, state | {"best": x, "t": torch.full((len(x),), query + 1)}) != x).any(dim=1)


def proposed(attack, state):
    return attack._proposals(state, attack.draw(state, 1), state["t"][:, None])


@pytest.mark.parametrize("query", [0, 10, 11, 50, 51, 200, 201, 500, 501, 1001, 2001, 4000, 4001, 6001, 8000, 8001])
def test_windows_shrink_on_the_papers_timetable(query):
    x = torch.full((3, 3, 40, 40), 0.5)
    side = max(round(math.sqrt(share(query) * 1600)), 1)
    pixels = changed(make("linf", steps=9000), query, x).sum(dim=(1, 2))
    assert (pixels == side**2).all()
    rescaled = changed(make("linf", steps=5000, rescale=True), query // 2, x).sum(dim=(1, 2))
    assert (rescaled == max(round(math.sqrt(share(query // 2 * 2) * 1600)), 1) ** 2).all()
    odd = max(side, 3) + 1 - max(side, 3) % 2
    assert (changed(make("l2", steps=9000), query, x).sum(dim=(1, 2)) == odd**2).all()


def test_each_image_has_a_window_of_its_own_anywhere_in_it():
    x = torch.full((4000, 3, 6, 9), 0.5)
    for official in (False, True):
        attack = make("linf", steps=9000, official=official, p_init=0.2)
        window = changed(attack, 0, x)  # side 3
        top, left = window.any(dim=2).int().argmax(dim=1), window.any(dim=1).int().argmax(dim=1)
        rows, columns = torch.bincount(top, minlength=4), torch.bincount(left, minlength=7)
        allowed = (3, 6) if official else (4, 7)
        assert (rows > 0).sum() == allowed[0] and (columns > 0).sum() == allowed[1]
        assert rows.max() < 4000 / allowed[0] * 1.15 and columns.max() < 4000 / allowed[1] * 1.25


@pytest.mark.parametrize("size", [(17, 31), (5, 40), (1, 1)])
def test_windows_fit_into_the_image(size):
    for norm in ("linf", "l2", "l1"):
        sides = window_sides(norm, *size, 0.8)
        assert all(1 <= side <= min(size) for side in sides) and sides == sorted(sides, reverse=True)


def test_a_linf_window_goes_to_the_face_of_the_ball_channel_by_channel():
    x = torch.full((200, 3, 10, 10), 0.5)
    state = begun(make("linf"), Net(), x, torch.zeros(200, dtype=torch.int64)) | {"t": torch.full((200,), 1)}
    delta = proposed(make("linf"), state | {"best": x}) - x
    seen = delta.flatten(2).abs().amax(dim=2)
    assert torch.allclose(seen, torch.tensor(0.1))
    signs = delta.flatten(2).sum(dim=2).sign()
    assert len(torch.unique(signs, dim=0)) == 8, "all combinations occur"


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_bump_has_two_halves_of_equal_weight(norm):
    for side in (2, 3, 7, 12):
        whole = bump(norm, side)
        power = 2 if norm == "l2" else 1
        assert whole.shape == (side, side) and torch.allclose(whole.norm(p=power), torch.tensor(1.0))
        upper, lower = whole[: side // 2], whole[side // 2 :]
        assert (upper > 0).all() and (lower < 0).all()
        assert torch.allclose(upper.norm(p=power), lower.norm(p=power))
    peak = bump(norm, 7)[3:].abs()
    assert peak.argmax() == 2 * 7 + 3, "in the middle of its half"
    decay = 2 if norm == "l2" else 4
    expected = sum(1 / k**decay for k in range(2, 5)) / sum(1 / k**decay for k in range(1, 5))
    assert math.isclose(peak[2, 4] / peak[2, 3], expected, rel_tol=1e-4)


# ---------------------------------------------------------------- strength


class Quantised(nn.Module):
    """Sees only which pixels are bright: no gradient, though every bright pixel counts."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.randn(3, 12, 12, generator=generator).cumsum(1).cumsum(2)
        self.weight /= self.weight.abs().mean()

    def forward(self, x):
        bright = (x > 0.5).float()
        score = (bright * self.weight).flatten(1).sum(dim=1) - self.weight.sum() / 2
        return torch.stack([score, -score], dim=1)


@every_norm
def test_it_finds_what_a_model_without_gradients_hides(norm):
    model = Quantised()
    generator = torch.Generator().manual_seed(2)
    x = 0.5 + 0.04 * (2 * torch.rand(10, 3, 12, 12, generator=generator) - 1)
    towards = (model.weight > 0).float() * 2 - 1
    x = (x + 0.012 * towards).clamp(0, 1)
    y = model(x).argmax(dim=1)
    threat = Threat(norm, {"linf": 0.06, "l2": 0.7, "l1": 40}[norm])
    blind = APGD(threat=threat, steps=20).run(model, x, y)
    assert blind.fooled.sum() <= 2 and blind.zero_gradient.all()
    seeing = Square(threat=threat, steps=150).run(model, x, y)
    assert seeing.fooled.sum() >= 7
    assert (model(seeing.x_adv).argmax(dim=1) != y)[seeing.fooled].all()


class AlwaysAccepts(Square):
    def advance_ahead(self, model, state, drawn, **settings):
        state = state | {"best_margin": torch.full_like(state["best_margin"], -torch.inf)}
        return super().advance_ahead(model, state, drawn, **settings)


class NeverShrinks(Square):
    def _level(self, query, steps, halvings):
        return torch.zeros_like(query)


class SameWindow(Square):
    def _offsets(self, keys, sides, height, width, stream):
        return torch.zeros_like(sides), torch.zeros_like(sides)


@functools.cache
def margins(kind, norm):
    """How close a form of the attack comes to misclassifying each image."""
    model, x = Net(), images(16)
    *_, last = states(kind(threat=Threat(norm, EPS[norm]), steps=300), model, x, model(x).argmax(dim=1))
    return last["best_margin"]


@every_norm
@pytest.mark.parametrize("mutant", [AlwaysAccepts, NeverShrinks, SameWindow])
def test_mutants_come_less_close(norm, mutant):
    assert (margins(Square, norm) > margins(mutant, norm)).sum() >= 13


def test_a_tie_is_not_a_success():
    class Tied(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 3)

    x = images(3)
    outcome = make("linf", steps=5).run(Tied(), x, torch.zeros(3, dtype=torch.int64))
    assert not outcome.fooled.any() and (outcome.best_loss == 0).all()


def test_nan_is_not_a_success():
    class Broken(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 3), torch.nan)

    outcome = make("linf", steps=5).run(Broken(), images(3), torch.zeros(3, dtype=torch.int64))
    assert not outcome.fooled.any() and outcome.not_finite.all()


def test_reaching_a_class():
    model, x = Net(), images(6)
    logits = model(x)
    y, target = logits.argmax(dim=1), logits.argsort(dim=1)[:, -2]
    outcome = Square(threat=Threat("linf", "0.02"), steps=200).run(model, x, y, target=target)
    assert torch.equal(outcome.fooled, model(outcome.x_adv).argmax(dim=1) == target) and 1 <= outcome.fooled.sum() < 6


# ---------------------------------------------------------------- passes, batches, settings


class Counting(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.seen, self.wanted = model, 0, 0

    def forward(self, x):
        self.seen += len(x)
        self.wanted += int(x.requires_grad or torch.is_grad_enabled())
        return self.model(x)


def test_one_forward_per_query_and_no_gradient():
    counting, x = Counting(Net()), images(4)
    y = Net()(x).argmax(dim=1)
    attack = Square(threat=Threat("linf", "0.0001"), steps=13, restarts=2)
    assert not attack.run(counting, x, y).fooled.any()
    assert counting.seen == 4 * (1 + 2 * 14) and counting.wanted == 0 and attack.cost(10) == Cost(1, 0)


def pooled(attack, model, x, y, keys, batch_size):
    verifier = Verifier(model, CPU)
    return Pool(model, CPU, batch_size=batch_size, verifier=verifier).run(
        attack, AttackInputs(x, y, keys, verifier.logits(x))
    )


@every_norm
def test_neither_slots_nor_order_matter(norm):
    model, x = Net(), images(12)
    y, keys = model(x).argmax(dim=1), torch.arange(12) * 5
    attack = Square(threat=Threat(norm, EPS[norm] / 4), steps=40, restarts=2)
    whole = pooled(attack, model, x, y, keys, 12)
    assert whole.broken.any() and not whole.broken.all()
    few = pooled(attack, model, x, y, keys, 5)
    order = torch.tensor([3, 9, 0, 11, 5, 2, 8, 10, 1, 7, 4, 6])
    mixed = pooled(attack, model, x[order], y[order], keys[order], 3)
    assert (whole.successful == few.successful).all() and (mixed.successful == whole.successful[order.numpy()]).all()
    assert torch.allclose(whole.x_adv, few.x_adv, atol=1e-5)
    assert torch.allclose(mixed.x_adv, whole.x_adv[order], atol=1e-5)
    other = pooled(dataclasses.replace(attack, seed=1), model, x, y, keys, 12)
    assert not torch.allclose(other.x_adv, whole.x_adv, atol=1e-5)


@every_norm
def test_a_step_is_one_graph(norm):
    """No value is looked at on the way: what torch.compile traces whole, a CUDA graph can replay."""
    model, x = Net().requires_grad_(False), images(3)
    y = model(x).argmax(dim=1)
    attack = make(norm, steps=9)
    state = begun(attack, model, x, y) | {"t": torch.tensor([0, 1, 9])}
    compiled = torch.compile(lambda state: attack.advance(model, state), fullgraph=True, dynamic=False, backend="eager")
    made, expected = compiled(state), attack.advance(model, state)
    assert made.keys() == expected.keys()
    assert all(torch.allclose(made[name].float(), expected[name].float(), atol=1e-5) for name in made)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"restarts": 0}, {"p_init": 0.0}, {"p_init": 1.5}])
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(UserError, match=next(iter(bad))):
        make("linf", **bad)
