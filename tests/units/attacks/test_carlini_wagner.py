"""Carlini and Wagner's attack against closed forms, and the faults of published versions of it."""

import dataclasses
import math

import pytest
import torch
from linear_models import PIXELS, SHAPE, Linear, best_gain, images
from torch import nn

from hardtack.attacks import CarliniWagner, carlini_wagner, nearest
from hardtack.base.config import choose, plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat


def by_name(name, **settings):
    return choose(attacks, {"name": name, **settings})


def right(model, x):
    with torch.no_grad():
        return model(x).argmax(1)


def sizes(x_adv, x):
    return (x_adv - x).flatten(1).norm(dim=1)


class Recorder(nn.Module):
    """Remembers every image it was shown and every answer it gave."""

    def __init__(self, model):
        super().__init__()
        self.model, self.shown, self.answers = model, [], []

    def forward(self, x):
        logits = self.model(x)
        self.shown.append(x.detach().clone())
        self.answers.append(logits.detach().argmax(1))
        return logits


MODEL = Linear(classes=4)
X = images("active box", count=24)
Y = right(MODEL, X)

# ---------------------------------------------------------------- closed forms


def exact_distance(model, x, y):
    """The smallest eps whose l2 ball ∩ box holds a point on the boundary of two classes, by bisection in float64."""
    logits = model(x).double().detach()
    margin, slope = logits.amax(1) - logits.amin(1), model.slope(y)
    low, high = torch.zeros(len(x)).double(), torch.full((len(x),), PIXELS**0.5).double()
    for _ in range(30):
        middle = (low + high) / 2
        crossed = best_gain(slope, x, middle, "l2") >= margin
        low, high = torch.where(crossed, low, middle), torch.where(crossed, middle, high)
    return high


@pytest.mark.parametrize("kind", ["grey", "active box", "corners"])
def test_the_search_comes_close_to_the_nearest_wrong_answer(kind):
    model, x = Linear(), images(kind, count=8)
    y = right(model, x)
    found = by_name("cw_search").run(model, x, y)
    assert found.fooled.all() and (model(found.x_adv).argmax(1) != y).all()
    assert (found.x_adv >= 0).all() and (found.x_adv <= 1).all()
    ratio = sizes(found.x_adv, x).double() / exact_distance(model, x, y)
    assert ratio.min() > 0.999 and ratio.max() < 1.03


def test_the_descent_is_adams():
    """Beside torch's own Adam on the objective as it is written, away from the faces of the box."""
    model, x = MODEL.double(), images("grey", count=6).double()
    seen, y = Recorder(model), right(model, x)
    CarliniWagner(steps=6, c=0.7, lr=0.02).search(seen, x, y)
    span = 0.5 + carlini_wagner.HAIR
    w = ((x - 0.5) / span).atanh().requires_grad_()
    adam = torch.optim.Adam([w], lr=0.02)
    for step in range(7):
        image = 0.5 + span * w.tanh()
        assert torch.allclose(seen.shown[step], image, atol=1e-9), step
        logits = model(image).float()
        label = logits.gather(1, y[:, None])[:, 0]
        other = logits.scatter(1, y[:, None], -torch.inf).amax(1)
        loss = ((image - x) ** 2).sum() + 0.7 * (label - other).clamp_min(0).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    MODEL.float()


# ---------------------------------------------------------------- faults of published versions


class Shifted(nn.Module):
    def forward(self, x):
        return MODEL(x) - 50


def test_logits_may_all_be_negative(monkeypatch):
    attack = CarliniWagner(c=3.0)
    level, below = attack.run(MODEL, X, Y), attack.run(Shifted(), X, Y)
    assert level.fooled.all() and below.fooled.all()
    assert torch.allclose(sizes(level.x_adv, X), sizes(below.x_adv, X), rtol=0.02)

    def masked_by_zero(logits, y, reference=None):
        label = nn.functional.one_hot(y, logits.shape[1]).bool()
        return logits.masked_fill(label, 0).amax(1) - logits.masked_fill(~label, 0).sum(1)

    monkeypatch.setattr(nearest, "margin", masked_by_zero)
    assert not attack.run(Shifted(), X, Y).fooled.any(), "the mutant this test is for"


def test_the_last_update_is_looked_at():
    found = CarliniWagner(steps=1, lr=0.8).run(MODEL, X, Y)
    assert found.fooled.any() and (found.broken_at[found.fooled] == 1).all()


@pytest.mark.parametrize("settings", [{"c": 5.0}, {"searches": 4, "steps": 80}], ids=["one", "four"])
def test_the_closest_success_of_all_is_kept(settings):
    seen = Recorder(MODEL)
    found = CarliniWagner(**settings).search(seen, X, Y, verdict=False)
    total = settings.get("searches", 1) * (settings.get("steps", 50) + 1)
    assert len(seen.shown) == total, "every update is looked at once"
    away = torch.stack([torch.where(answer != Y, sizes(image, X), torch.inf) for image, answer in zip(
        seen.shown, seen.answers, strict=True)])  # fmt: skip
    assert torch.equal(sizes(found.x_adv, X), away.amin(0)) and found.fooled.all()
    last = torch.stack([away[:, i][away[:, i].isfinite()][-1] for i in range(len(X))])
    assert (last > 1.01 * away.amin(0)).any(), "the last success would not do"


def face_only():
    """Only pixels that lie on the faces of the box can change the answer."""
    model, x = Linear(), images("grey", count=8)
    rows = x.flatten(1)
    rows[:, ::2] = (torch.arange(30) % 2).float()
    model.head.weight.data[:, 1::2] = 0
    inward = torch.where(rows[0, ::2] > 0, -1.0, 1.0)
    model.head.weight.data[1, ::2], model.head.weight.data[0, ::2] = 0.5 * inward, -0.5 * inward
    model.head.bias.data = torch.tensor([16.0, 0.0])
    model.head.bias.data[0] = (model(x)[:, 1] - model(x)[:, 0]).mean().item() + 16.0 + 0.4
    return model, rows.reshape(x.shape), torch.zeros(8, dtype=torch.int64)


def test_pixels_that_are_exactly_0_or_1_move(monkeypatch):
    model, x, y = face_only()
    assert (right(model, x) == 0).all()
    found = CarliniWagner(steps=100).run(model, x, y)
    moved = (found.x_adv - x).flatten(1)
    assert found.fooled.all() and (moved[:, ::2].abs() > 0.005).all()
    assert (found.x_adv >= 0).all() and (found.x_adv <= 1).all()
    monkeypatch.setattr(carlini_wagner, "_SPAN", 0.5 + 1e-6)
    monkeypatch.setattr(carlini_wagner, "_FACE", math.atanh(0.5 / (0.5 + 1e-6)))
    assert not CarliniWagner(steps=100).run(model, x, y).fooled.any(), "the mutant: a hair too thin"


def test_every_image_starts_as_itself():
    x = torch.cat([torch.rand(5, *SHAPE), torch.rand(3, *SHAPE).round()])
    w = carlini_wagner.from_pixels(x)
    assert w.isfinite().all() and torch.allclose(carlini_wagner.to_pixels(w), x, atol=1e-6)


# ---------------------------------------------------------------- c


def test_a_weight_too_small_is_raised_and_one_too_large_lowered():
    small = CarliniWagner(c=1e-4)
    assert small.run(MODEL, X, Y).fooled.sum() <= 1, "Adam's first steps are as long with any weight"
    raised = dataclasses.replace(small, searches=7).run(MODEL, X, Y)
    assert raised.fooled.all() and raised.broken_at.median() > 50
    large = CarliniWagner(c=100.0)
    once, often = large.run(MODEL, X, Y), dataclasses.replace(large, searches=9).run(MODEL, X, Y)
    assert once.fooled.all() and (sizes(often.x_adv, X) <= sizes(once.x_adv, X)).all()
    assert sizes(often.x_adv, X).mean() < 0.9 * sizes(once.x_adv, X).mean()


def test_every_image_has_its_own_weight():
    """An easy image beside hard ones is searched as if it were alone."""
    attack = CarliniWagner(c=0.02, searches=4, steps=20)
    whole = attack.run(MODEL, X, Y)
    alone = [attack.run(MODEL, X[i : i + 1], Y[i : i + 1]) for i in range(8)]
    assert torch.allclose(torch.cat([found.x_adv for found in alone]), whole.x_adv[:8], atol=1e-4)
    assert torch.equal(torch.cat([found.broken_at for found in alone]), whole.broken_at[:8])
    assert len(set(whole.broken_at.div(20, rounding_mode="floor").tolist())) > 1, "they fall in different searches"


# ---------------------------------------------------------------- what counts


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_the_threat_decides_what_is_fooled(norm):
    free = CarliniWagner(c=5.0).run(MODEL, X, Y)
    assert free.fooled.all()
    eps = Threat(norm, 1).size(free.x_adv - X).median().item()
    threat = Threat(norm, round(eps, 4))
    found = CarliniWagner(c=5.0, threat=threat).run(MODEL, X, Y)
    assert threat.contains(found.x_adv, X).all()
    assert torch.equal(found.fooled, MODEL(found.x_adv).argmax(1) != Y)
    assert found.fooled.any() and not found.fooled.all()
    assert torch.equal(found.broken_at >= 0, found.fooled)
    assert found.fooled[threat.contains(free.x_adv, X)].all()
    assert (found.best_loss[~found.fooled] > found.first_loss[~found.fooled]).all()


def test_an_image_that_is_wrong_already_stays():
    y = (Y + 1) % 4
    found = CarliniWagner(steps=5, threat="l2:0.1").run(MODEL, X, y)
    assert torch.equal(found.x_adv, X) and found.fooled.all() and not found.broken_at.any()
    assert not found.zero_gradient.any(), "nothing to gain is not the same as no gradient"


def test_confidence_is_a_margin_of_logits():
    for confidence in (0.0, 0.5):
        found = CarliniWagner(c=10.0, steps=100, confidence=confidence).run(MODEL, X, Y)
        assert found.fooled.all() and found.best_loss.min() >= confidence
        assert (found.best_loss < confidence + 0.3).all()


class Blind(nn.Module):
    def forward(self, x):
        return MODEL(x.detach())


class Faulty(nn.Module):
    def forward(self, x):
        moved = (x - X[: len(x)]).flatten(1).abs().amax(1, keepdim=True) > 0
        return torch.where(moved, torch.nan, MODEL(x))


def test_faults_of_the_model_are_reported():
    blind = CarliniWagner(steps=3).run(Blind(), X, Y)
    assert blind.zero_gradient.all() and not blind.fooled.any() and (blind.broken_at == -1).all()
    faulty = CarliniWagner(steps=3, searches=2).run(Faulty(), X, Y)
    assert faulty.not_finite.all() and not faulty.fooled.any() and faulty.x_adv.isfinite().all()


@pytest.mark.parametrize("classes", [2, 1000])
def test_few_and_many_classes(classes):
    model, x = Linear(classes=classes), images(count=6)
    y = right(model, x)
    found = by_name("cw", c=5.0).run(model, x, y)
    assert found.fooled.all() and (model(found.x_adv).argmax(1) != y).all()


@pytest.mark.parametrize("how", ["random", "least_likely", "runner_up"])
def test_targets(how):
    found = CarliniWagner(target=how, c=10.0, steps=150).run(MODEL, X, Y)
    assert found.fooled.all() and (MODEL(found.x_adv).argmax(1) != Y).all()
    target = (Y + 2) % 4
    aimed = CarliniWagner(c=10.0, steps=150).run(MODEL, X, Y, target=target)
    assert torch.equal(MODEL(aimed.x_adv).argmax(1), target) and aimed.fooled.all()


@pytest.mark.parametrize("settings", [{"searches": 2}, {"threat": "l1:3", "target": "random"}], ids=str)
def test_the_host_never_waits_for_the_device(settings):
    """Tensors on the meta device have no values: whoever asks for one is refused."""
    x, y = torch.empty(3, *SHAPE, device="meta"), torch.empty(3, dtype=torch.int64, device="meta")
    found = CarliniWagner(steps=4, **settings).search(Linear(classes=4).to("meta"), x, y)
    assert found.x_adv.shape == x.shape


# ---------------------------------------------------------------- settings


def test_names_and_defaults():
    assert by_name("cw") == CarliniWagner() and str(CarliniWagner().threat) == "linf:1"
    assert by_name("cw_search") == CarliniWagner(searches=9, steps=200)
    attack = by_name("cw_search", threat="l2:0.5", confidence="1/2")
    assert choose(attacks, plain(attack)) == attack and plain(attack)["name"] == "cw_search"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"steps": 0}, "at least 1"),
        ({"searches": 0}, "at least 1"),
        ({"lr": 0}, "lr must be positive"),
        ({"c": -1}, "c must be positive"),
        ({"confidence": -1}, "confidence"),
        ({"target": "any"}, "target'"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        CarliniWagner(**settings)
    with pytest.raises(UserError, match=words):
        by_name("cw", **settings)
