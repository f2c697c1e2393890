"""What a search reports about itself: verdicts, steps, losses, gradients, and what it refuses."""

import dataclasses
import itertools

import pytest
import torch
from linear_models import SHAPE, Linear, best_gain, images, labels
from torch import nn

from hardtack.attacks import Ascent, ascent, ascent_step
from hardtack.attacks.losses import LOSSES
from hardtack.base import config
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat


class Rough(nn.Module):
    """A small random network, of which a gentle attack fools about half."""

    def __init__(self, classes=4, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body, self.head = nn.Linear(60, 64), nn.Linear(64, classes)
        self.body.weight.data *= 8

    def forward(self, x):
        return self.head(self.body(x.flatten(1)).sin())


class Waves(nn.Module):
    """Two classes, and a loss of crests and troughs: searches get stuck in different places."""

    def __init__(self):
        super().__init__()
        self.direction = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) / 60**0.5

    def forward(self, x):
        height = (60 * (x.flatten(1) @ self.direction)).cos().mean(1)
        return torch.stack([torch.full_like(height, 0.75), height], 1)


ROUGH = Rough()
X = images("active box", count=48)
Y = ROUGH(X).argmax(1)  # every image starts out correct
GENTLE = "linf:0.02"  # about half of the images fall


def outcome(model=ROUGH, x=X, y=Y, **settings):
    return Ascent(**{"threat": GENTLE, **settings}).run(model, x, y)


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("keep", ["best", "last", None])
@pytest.mark.parametrize("target", [None, "runner_up"])
def test_fooled_is_what_a_fresh_look_at_the_images_says(keep, target):
    found = outcome(keep=keep, target=target)
    predicted = ROUGH(found.x_adv).argmax(1)
    wanted = ascent.choose_target(ROUGH(X), Y, torch.arange(48), "runner_up")
    assert torch.equal(found.fooled, predicted != Y if target is None else predicted == wanted)
    assert found.fooled.any() and not found.fooled.all(), "a test that cannot tell the two apart tests nothing"


def test_the_best_iterate_is_at_least_as_good_as_the_last():
    best, last = outcome(keep="best", steps=7, momentum=0.9), outcome(keep="last", steps=7, momentum=0.9)
    assert (best.fooled | ~last.fooled).all(), "a wrong answer on the way is not forgotten"
    loss = LOSSES["ce"]
    same = best.fooled == last.fooled
    assert (loss(ROUGH(best.x_adv), Y) >= loss(ROUGH(last.x_adv), Y) - 1e-5)[same].all()
    assert torch.allclose(best.best_loss, loss(ROUGH(best.x_adv), Y), atol=1e-5)


def test_a_success_on_the_way_is_kept():
    """The answer is wrong only in a narrow dent that long steps jump into and out of again."""

    class Dent(nn.Module):
        def forward(self, x):
            height = x.flatten(1).mean(1)
            # rising everywhere, with the second class ahead between 0.58 and 0.62 only
            ahead = (height - 0.6).abs() < 0.02
            return torch.stack([torch.where(ahead, -9.0, 9.0), height], 1)

    x, y = torch.full((1, 3, 4, 4), 0.5), torch.tensor([0])
    attack = Ascent(threat="linf:0.4", steps=3, step=0.1, start="clean", loss="margin")
    kept = attack.run(Dent(), x, y)
    assert kept.fooled.item() and kept.broken_at.item() == 1
    assert torch.allclose(kept.x_adv, x + 0.1)
    last = dataclasses.replace(attack, keep="last").run(Dent(), x, y)
    assert not last.fooled.item() and torch.allclose(last.x_adv, x + 0.3), "the mutant this test is for"


def on_waves(**settings):
    return outcome(Waves(), X, 0 * Y, threat="linf:0.05", loss="margin", **settings)


def test_restarts_never_hurt():
    found = [on_waves(restarts=count, steps=5) for count in (1, 2, 4, 8)]
    for fewer, more in itertools.pairwise(found):
        assert (more.fooled | ~fewer.fooled).all()
        same = more.fooled == fewer.fooled
        assert (more.best_loss >= fewer.best_loss)[same].all()
    assert found[-1].fooled.sum() > 2 * found[0].fooled.sum(), "and here they help"


def test_more_steps_fool_more():
    counts = [on_waves(steps=steps).fooled.sum().item() for steps in (1, 40)]
    assert counts[1] > counts[0] + 24


# ---------------------------------------------------------------- when it fell


def test_broken_at_counts_the_steps_before_the_first_success():
    """Equal steps on a linear model: the step at which each image falls follows from its margin."""
    model, x = Linear(), images("grey")
    with torch.no_grad():
        logits = model(x)
        y = logits.argmax(1)
        margin = (logits.max(1).values - logits.min(1).values).double()
    slope = model.slope(y)
    per_step = best_gain(slope, x, 0.01, "linf")
    expected = (margin / per_step).floor().long() + 1
    found = Ascent(threat="linf:0.06", steps=6, step=0.01, start="clean").run(model, x, y)
    falls = expected <= 6
    assert torch.equal(found.broken_at, torch.where(falls, expected, -1))
    assert falls.any() and not falls.all() and torch.equal(found.fooled, falls)


def test_an_image_that_is_wrong_from_the_start_took_no_step():
    wrong = (Y + 1) % 4
    found = outcome(y=wrong, start="clean", restarts=1)
    assert found.fooled.all() and not found.broken_at.any()


def test_steps_of_earlier_restarts_count():
    found, first = on_waves(restarts=4, steps=5), on_waves(restarts=1, steps=5)
    late = found.fooled & ~first.fooled
    assert late.any() and (found.broken_at[late] >= 5).all() and (found.broken_at[late] <= 20).all()
    assert torch.equal(found.broken_at[first.fooled], first.broken_at[first.fooled])
    assert (found.broken_at[~found.fooled] == -1).all()


# ---------------------------------------------------------------- losses and gradients it saw


def test_first_and_best_loss():
    found = outcome(start="clean")
    clean = LOSSES["ce"](ROUGH(X), Y)
    assert torch.allclose(found.first_loss, clean, atol=1e-6)
    assert (found.best_loss >= found.first_loss).all()
    targeted = outcome(start="clean", target="least_likely")
    goal = ROUGH(X).argmin(1)
    assert torch.allclose(targeted.first_loss, -LOSSES["ce"](ROUGH(X), goal), atol=1e-6)


class Saturated(nn.Module):
    """Logits so far apart that the cross-entropy of a correct answer is exactly 0 in fp32."""

    def forward(self, x):
        return ROUGH(x) * 1e6


class Detached(nn.Module):
    def forward(self, x):
        return ROUGH(x.detach())


class Blind(nn.Module):
    """Has parameters, and so a graph, but the image is not in it."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x):
        return self.bias.expand(len(x), 2)


class Rounded(nn.Module):
    def forward(self, x):
        return ROUGH((x * 8).round() / 8)


@pytest.mark.parametrize("model", [Saturated(), Detached(), Blind(), Rounded()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_zero_gradients_are_reported_and_nothing_crashes(model, norm):
    y = model(X).argmax(1)
    for momentum in (0.0, 1.0):
        found = Ascent(threat=f"{norm}:0.02", start="clean", momentum=momentum).run(model, X, y)
        assert found.zero_gradient.all() and found.x_adv.isfinite().all() and not found.fooled.any()


def test_a_zero_gradient_is_seen_without_freezing_the_parameters():
    """`search` is called by training on models that `preserve_state` has not frozen in a test."""
    found = Ascent(threat=GENTLE).search(Blind(), X, torch.zeros(48, dtype=torch.int64))
    assert found.zero_gradient.all()


def test_living_gradients_are_not_called_zero():
    assert not outcome().zero_gradient.any()
    found = Ascent(threat=GENTLE, loss="margin").run(Saturated(), X, Y)
    assert not found.zero_gradient.any() and found.fooled.any(), "the margin does not saturate"


class Faulty(nn.Module):
    """NaN everywhere but on the clean image: every `argmax != y` would cheer."""

    def __init__(self, value=torch.nan):
        super().__init__()
        self.value = value

    def forward(self, x):
        moved = (x - X[: len(x)]).flatten(1).abs().amax(1, keepdim=True) > 0
        logits = ROUGH(x)
        return torch.where(moved, logits * 0 + self.value, logits)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("start", ["clean", "random"])
def test_logits_that_are_not_numbers_are_no_success(value, start):
    found = outcome(model=Faulty(value), start=start)
    assert not found.fooled.any() and (found.broken_at == -1).all()
    assert found.x_adv.isfinite().all() and Threat.parse(GENTLE).contains(found.x_adv, X).all()


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"steps": 0}, "greater than or equal to 1"),
        ({"restarts": 0}, "greater than or equal to 1"),
        ({"steps": True}, "steps'"),
        ({"step": 0.0}, "step.: input should be greater than 0"),
        ({"step": -0.1}, "step.: input should be greater than 0"),
        ({"relative_step": 0}, "relative_step.: input should be greater than 0"),
        ({"relative_step": float("nan")}, "relative_step.: input should be a finite number"),
        ({"step": 0.1, "relative_step": 1}, "not both"),
        ({"momentum": -1}, "momentum"),
        ({"start": "clean", "restarts": 2}, "repeat the same search"),
        ({"loss": "kl", "start": "clean"}, "zero gradient"),
        ({"loss": "kl", "target": "random"}, "kl loss has no targeted form"),
        ({"loss": "cee"}, "loss'.*'ce'"),
        ({"start": "rnd"}, "start'.*'random'"),
        ({"keep": "first"}, "keep'"),
        ({"target": "any"}, "target'"),
        ({"mode": "test"}, "mode'"),
        ({"threat": "linf:8"}, "did you mean 'linf:8/255'"),
        ({"threat": None}, "threat"),
    ],
)
def test_impossible_settings_are_refused_in_python_and_in_yaml_alike(settings, words):
    settings = {"threat": GENTLE, **settings}
    with pytest.raises(UserError, match=words):
        Ascent(**settings)
    with pytest.raises(UserError, match=words):
        config.choose(attacks, {"name": "pgd", **settings}, path="attack")


def test_a_kl_attack_refuses_a_target_given_at_the_call():
    with pytest.raises(UserError, match="has no targeted form"):
        Ascent(threat=GENTLE, loss="kl")(ROUGH, X, Y, target=Y)


def test_the_path_of_a_fault_is_named():
    with pytest.raises(UserError, match=r"attack\.steps.: input should be greater than or equal to 1"):
        config.choose(attacks, {"name": "pgd", "threat": GENTLE, "steps": 0}, path="attack")


def test_text_is_understood_in_python_too():
    assert Ascent(threat="linf:8/255", step="2/255") == Ascent(threat=Threat("linf", 8 / 255), step=2 / 255)


def test_step_lengths():
    """Pixel units, multiples of eps, or 2.5 eps shared over the steps, on a model of constant slope."""
    model, x, y = Linear(), images("grey"), labels()

    def first_move(**settings):
        found = Ascent(threat="linf:0.04", start="clean", keep="last", **settings)(model, x, y)
        return (found - x).abs().amax().item()

    assert first_move(steps=1, step=0.01) == pytest.approx(0.01, abs=1e-6)
    assert first_move(steps=1, relative_step=0.5) == pytest.approx(0.02, abs=1e-6)
    assert first_move(steps=5, step=0.002) == pytest.approx(0.01, abs=1e-6)
    assert first_move(steps=1) == pytest.approx(0.04, abs=1e-6), "2.5 eps, projected"


def test_starts():
    x = images("grey")
    keys = torch.arange(len(x))
    eps = torch.tensor(0.02)
    clean, random, gaussian, nudged = (
        Ascent(threat=GENTLE, start=start).starting_point(x, eps, keys, Threat.parse(GENTLE).ball)
        for start in ("clean", "random", "gaussian", "nudged")
    )
    assert torch.equal(clean, x)
    assert 0.019 < (random - x).abs().amax() <= 0.02 + 1e-6
    speck = (gaussian - x).flatten()
    assert 0.0009 < speck.std() < 0.0011 and speck.abs().amax() < 0.006
    inside = (random - x).abs() < 0.02 - 2e-5
    assert torch.allclose((nudged - random)[inside], torch.tensor(1e-5), atol=1e-7)
    assert (nudged - x).abs().amax() <= 0.02 + 1e-7, "projected again"


def test_eps_may_grow_and_may_differ_by_image():
    """Warm-up hands the radius in; `step` in pixel units is then left alone, a relative one grows with it."""
    eps = torch.linspace(0, 0.02, len(X))
    found = Ascent(threat=GENTLE).search(ROUGH, X, Y, eps=eps)
    size = (found.x_adv - X).flatten(1).abs().amax(1)
    assert (size <= eps + 1e-6).all() and torch.equal(found.x_adv[0], X[0])
    assert torch.equal(Ascent(threat=GENTLE).search(ROUGH, X, Y, eps=torch.tensor(0.0)).x_adv, X)


def test_probabilities_as_labels_mean_their_largest():
    soft = nn.functional.one_hot(Y, 4).float() * 0.9 + 0.025
    assert torch.equal(outcome(y=soft).x_adv, outcome().x_adv)


# ---------------------------------------------------------------- compiled


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_compiled_step_is_the_eager_step(norm, momentum):
    torch._dynamo.reset()
    compiled = torch.compile(ascent_step, backend="eager", fullgraph=True)
    attack = Ascent(threat=f"{norm}:0.3", steps=3, momentum=momentum, loss="margin")
    eager, graph = attack.search(ROUGH, X, Y), attack.search(ROUGH, X, Y, step=compiled)
    assert torch.allclose(eager.x_adv, graph.x_adv, atol=1e-5)
    assert torch.equal(eager.fooled, graph.fooled)


def test_the_step_survives_the_autograd_compiler_and_a_model_that_cuts_its_gradient():
    torch._dynamo.reset()
    compiled = torch.compile(ascent_step, backend="aot_eager", fullgraph=True)
    attack = Ascent(threat="linf:0.05", steps=3)
    assert torch.allclose(attack.search(ROUGH, X, Y).x_adv, attack.search(ROUGH, X, Y, step=compiled).x_adv, atol=1e-5)
    blind = attack.search(Detached(), X, Y, step=torch.compile(ascent_step, backend="eager", fullgraph=True))
    assert blind.zero_gradient.all()


def test_shapes_other_than_square():
    x = torch.rand(2, *SHAPE)
    assert Ascent(threat="l2:0.5")(Linear(), x, labels(2)).shape == (2, 3, 4, 5)
