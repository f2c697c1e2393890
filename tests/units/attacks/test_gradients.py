"""Gradient sources: exact values, gradients in closed form, planted faults, and attacks that use them."""

import math

import pytest
import torch
from linear_models import Linear, best_gain, images
from torch import nn

from hardtack.attacks import APGD, FAB, Ascent
from hardtack.attacks.gradients import (
    Averaged,
    Estimated,
    Smoothed,
    antithetic_noise,
    averaged,
    directions,
    estimated,
    gradient_at,
    smoothed,
    through,
)
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat

CPU = Runtime(device="cpu", compile=False)
SHAPE, PIXELS, CLASSES = (3, 4, 5), 60, 4


class Quadratic(nn.Module):
    """logits = W x + xᵀ diag(q) x, whose Jacobian W + 2 q x is known."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.w = torch.randn(CLASSES, PIXELS, generator=generator, dtype=torch.float64)
        self.q = torch.randn(CLASSES, PIXELS, generator=generator, dtype=torch.float64)
        self.seen = []

    def forward(self, x):
        self.seen.append(x.detach())
        rows = x.flatten(1).to(torch.float64)
        return rows @ self.w.T + rows**2 @ self.q.T

    def gradient(self, x, weights):
        jacobian = self.w + 2 * self.q * x.flatten(1).to(torch.float64)[:, None]
        return (weights[:, :, None] * jacobian).sum(dim=1).reshape(x.shape)


class Wrong(nn.Module):
    """The values of a model, and a gradient that is reversed, scrambled or zero."""

    def __init__(self, model, factor):
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x):
        factor = torch.as_tensor(self.factor, dtype=x.dtype)
        return self.model(x.detach() + factor * (x - x.detach()))


class Ripple(nn.Module):
    """One logit: the sum of x + amplitude·sin(omega·x) over all pixels."""

    def __init__(self, omega, amplitude):
        super().__init__()
        self.omega, self.amplitude = omega, amplitude

    def forward(self, x):
        return (x + self.amplitude * torch.sin(self.omega * x)).flatten(1).sum(dim=1, keepdim=True)


class RippledInput(Ripple):
    """The same for each pixel by itself, as a defence in front of a model."""

    def forward(self, x):
        return x + self.amplitude * torch.sin(self.omega * x)


class Noisy(nn.Module):
    """A linear model of an image to which noise is added at every call."""

    def __init__(self, model, sigma):
        super().__init__()
        self.model, self.sigma = model, sigma

    def forward(self, x):
        return self.model(x + self.sigma * torch.randn_like(x)) * (1 + self.sigma * torch.randn(1).item())


def points(n=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return 0.3 + 0.4 * torch.rand(n, *SHAPE, generator=generator, dtype=dtype)


def cotangent(n=3, seed=1):
    return torch.randn(n, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SOURCES = {
    "smoothed": lambda model: smoothed(model, 0.05, samples=4),
    "estimated": lambda model: estimated(model, 0.05, samples=4),
    "through": lambda model: through(model, Quadratic()),
    "averaged": lambda model: averaged(model, 2),
}
every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


# ---------------------------------------------------------------- values


@every_source
def test_the_values_are_the_models_to_the_bit_with_and_without_a_gradient(make):
    model, x = Quadratic(), points()
    source = make(model)
    with torch.no_grad():
        assert torch.equal(source(x), model(x))
    assert torch.equal(source(x.clone().requires_grad_()).detach(), model(x))


@every_source
def test_a_model_that_answers_otherwise_with_gradients_enabled_is_asked_without(make):
    class Cheat(Quadratic):
        def forward(self, x):
            return super().forward(x) * (-1 if torch.is_grad_enabled() else 1)

    x = points()
    with torch.no_grad():
        honest = Cheat()(x)
    assert torch.equal(make(Cheat())(x.requires_grad_()).detach(), honest)


@every_source
def test_no_query_leaves_the_pixels_range(make):
    model, x = Quadratic(), points().round()
    image = x.clone().requires_grad_()
    make(model)(image).backward(cotangent(), inputs=[image])
    assert len(model.seen) > 0
    assert all(seen.min() >= 0 and seen.max() <= 1 for seen in model.seen)


# ---------------------------------------------------------------- gradients in closed form


def check_smoothing(kind):
    """Opposite noise cancels the second derivative exactly; a ripple is damped by the factor that theory gives."""
    model, x, weights = Quadratic(), points(), cotangent()
    found = gradient_at(kind(model, sigma=0.02, samples=6, seed=0), x, weights)
    torch.testing.assert_close(found, model.gradient(x, weights), rtol=1e-9, atol=1e-9)
    omega, sigma = 60.0, 0.02  # E cos(ω(x+σu)) = cos(ωx) exp(−ω²σ²/2)
    x, weights = points(4), torch.ones(4, 1, dtype=torch.float64)
    wanted = 1 + 3 * torch.cos(omega * x) * math.exp(-((omega * sigma) ** 2) / 2)
    found = gradient_at(kind(Ripple(omega, 3 / omega), sigma=sigma, samples=4000, seed=0), x, weights)
    assert (found - wanted).abs().max() < 0.15


def check_estimate(kind):
    """(f(x+σu) − f(x−σu)) / 2σ = u · gradient for a quadratic f, so the estimate is the mean of u (u · gradient)."""
    model, x, weights = Quadratic(), points(), cotangent()
    truth = model.gradient(x, weights).flatten(1)
    wanted = torch.zeros_like(truth)
    for noise in directions(x, 5, 8):
        rows = noise.flatten(1)
        wanted += rows * (rows * truth).sum(dim=1, keepdim=True) / 8
    found = gradient_at(kind(model, sigma=0.02, samples=16, seed=5), x, weights)
    torch.testing.assert_close(found.flatten(1), wanted, rtol=1e-6, atol=1e-6)
    x[:, 0], x[:, 1] = 0.0, 1.0  # pixels at the edge of the range count as much as the others
    x, weights, linear = x.float(), cotangent().float()[:, :2], Linear()
    truth = gradient_at(linear, x, weights)
    found = gradient_at(kind(linear, sigma=0.02, samples=8000, seed=0), x, weights)
    slope = (found * truth).sum(dim=(0, 2, 3)) / (truth * truth).sum(dim=(0, 2, 3))
    assert (slope - 1).abs().max() < 0.1


def check_mean(kind):
    """Values and gradient of a noisy linear model approach those of the linear one with the root of the passes."""
    linear, x, weights = Linear(), points(2, dtype=torch.float32), torch.tensor([[1.0, -1.0]] * 2)
    truth = gradient_at(linear, x, weights)
    torch.manual_seed(0)
    source = kind(Noisy(linear, 0.3), 400)
    assert (gradient_at(source, x, weights) - truth).norm() / truth.norm() < 4 * 0.3 / 400**0.5
    with torch.no_grad():
        spread = 0.3 * (linear.head.weight.norm(dim=1) + linear(x).abs()).max()
        assert (source(x) - linear(x)).abs().max() < 4 * spread / 400**0.5


def test_smoothing_gives_the_gradient_of_a_quadratic_and_damps_a_ripple():
    check_smoothing(Smoothed)


def test_the_estimate_is_the_gradient_seen_along_its_directions():
    check_estimate(Estimated)


def test_the_mean_over_passes_is_the_gradient_of_the_expectation():
    check_mean(Averaged)


def test_the_estimate_approaches_the_gradient_as_its_variance_says():
    """With m directions in d dimensions the squared cosine is near m / (m + d + 1)."""
    model, x, weights = Quadratic(), points(40, seed=9), cotangent(40)
    for pairs in (60, 600):
        found = gradient_at(estimated(model, 0.02, samples=2 * pairs), x, weights).flatten(1)
        cosine = torch.cosine_similarity(found, model.gradient(x, weights).flatten(1))
        assert abs(float((cosine**2).mean()) - pairs / (pairs + PIXELS + 1)) < 0.05


def test_the_estimate_on_a_grid_is_the_gradient_summed_over_each_tile():
    linear, weights = Linear(), torch.tensor([[1.0, -1.0]])
    x = points(1, dtype=torch.float32)
    truth = gradient_at(linear, x, weights)
    found = gradient_at(estimated(linear, 0.02, samples=6000, grid=2), x, weights)
    for channel in range(3):
        for rows, columns in ((slice(0, 2), slice(0, 3)), (slice(2, 4), slice(3, 5))):
            tile = found[0, channel, rows, columns]
            assert tile.std() < 1e-3 * tile.abs().max()
            assert abs(float(tile.mean() - truth[0, channel, rows, columns].sum())) < 0.25


@every_source
def test_a_backward_pass_through_the_source_is_its_pullback(make):
    model, x, weights = Quadratic(), points(), cotangent()
    image = x.clone().requires_grad_()
    torch.random.manual_seed(0)
    make(model)(image).backward(weights, inputs=[image])
    assert image.grad.any() and torch.equal(image.grad, gradient_at(make(model), x, weights))


def test_the_gradient_through_a_surrogate_is_the_surrogates_at_the_models_values():
    model, surrogate, x, weights = Linear(CLASSES), Linear(CLASSES, seed=1), points(dtype=torch.float32), cotangent()
    source = through(model, surrogate)
    assert torch.equal(gradient_at(source, x, weights.float()), gradient_at(surrogate, x, weights.float()))
    assert not torch.equal(gradient_at(source, x, weights.float()), gradient_at(model, x, weights.float()))


def test_sources_can_be_nested():
    model, x, weights = Quadratic(), points(), cotangent()
    nested = through(Wrong(model, -1.0), smoothed(model, 0.02, samples=2))
    torch.testing.assert_close(gradient_at(nested, x, weights), model.gradient(x, weights), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize("make", [smoothed, estimated])
def test_the_noise_of_an_image_does_not_depend_on_its_batch(make):
    x, weights = points(5), torch.ones(5, 1, dtype=torch.float64)
    source = make(Ripple(300.0, 1.0), 0.1, samples=4)
    together = gradient_at(source, x, weights)
    alone = torch.cat([gradient_at(source, x[[i]], weights[[i]]) for i in (3, 1)])
    torch.testing.assert_close(together[[3, 1]], alone)


def test_the_noise_differs_by_image_by_step_and_by_seed_and_its_pairs_are_opposite():
    x = points(2, dtype=torch.float32)
    (first,) = directions(x, 0, 1)
    for other in (directions(x, 1, 1), directions(x + 1e-6, 0, 1)):
        assert torch.corrcoef(torch.stack([first.flatten(), next(other).flatten()]))[0, 1].abs() < 0.35
    assert torch.corrcoef(torch.stack([first[0].flatten(), first[1].flatten()]))[0, 1].abs() < 0.45
    a, b, c = antithetic_noise(x, 0, 3)
    assert torch.equal(a, -b) and not torch.equal(a, c)


# ---------------------------------------------------------------- planted faults


class OneSided(Estimated):
    """Differences to the image itself, so that the second derivative enters."""

    def pullback(self, x, weights):
        total = torch.zeros_like(x)
        for noise in directions(x, self.seed, self.samples // 2):
            rise = ((self.model((x + self.sigma * noise).clamp(0, 1)) - self.model(x)) * weights).sum(dim=1)
            total += noise * rise.reshape(-1, 1, 1, 1) / self.sigma
        return total / (self.samples // 2)


class SameDirections(Estimated):
    """One set of directions for all images, so that every step of a search sees the same few of them."""

    def pullback(self, x, weights):
        total = torch.zeros_like(x)
        for noise in directions(torch.zeros_like(x), self.seed, self.samples // 2):
            rise = ((self.model(x + self.sigma * noise) - self.model(x - self.sigma * noise)) * weights).sum(dim=1)
            total += noise * rise.reshape(-1, 1, 1, 1) / (2 * self.sigma)
        return total / (self.samples // 2)


class Unpaired(Smoothed):
    """Independent noise instead of opposite pairs."""

    def pullback(self, x, weights):
        noises = directions(x, self.seed, self.samples)
        return sum(gradient_at(self.model, x + self.sigma * noise, weights) for noise in noises) / self.samples


class Unsmoothed(Smoothed):
    """The noise is forgotten."""

    def pullback(self, x, weights):
        return gradient_at(self.model, x, weights)


class OnePass(Averaged):
    """One pass instead of several."""

    def pullback(self, x, weights):
        return gradient_at(self.model, x, weights)


class OneValue(Averaged):
    """The gradient is averaged, and the logits are those of one pass."""

    def values(self, x):
        return self.model(x)


FAULTS = [
    (check_estimate, OneSided), (check_estimate, SameDirections), (check_smoothing, Unpaired),
    (check_smoothing, Unsmoothed), (check_mean, OnePass), (check_mean, OneValue),
]  # fmt: skip


@pytest.mark.parametrize(("check", "kind"), FAULTS, ids=[kind.__name__ for _, kind in FAULTS])
def test_a_weakened_source_is_noticed(check, kind):
    with pytest.raises(AssertionError):
        check(kind)


# ---------------------------------------------------------------- attacks with them

SCRAMBLED = torch.randn(SHAPE, generator=torch.Generator().manual_seed(8)).sign()
WRONG = {"reversed": -1.0, "cut": 0.0, "scrambled": SCRAMBLED}


def attack_of(norm, kind):
    threat = Threat(norm, {"linf": 0.05, "l2": 0.4, "l1": 1.2}[norm])
    return {
        "pgd": Ascent(threat=threat, steps=20),
        "apgd": APGD(threat=threat, steps=20, loss="margin"),
        "fab": FAB(threat=threat, steps=20, targets=1),
    }[kind]


def breakable(model, honest, threat):
    """Images whose margin is 30 to 70 % of what the best perturbation of the linear model `honest` gains."""
    x = images("active box", 100)
    honest.head.bias.data -= honest(x).detach().mean(dim=0)  # both classes are likely
    y, clean = honest(x).argmax(dim=1), model(x).detach()
    gain = best_gain(honest.slope(y), x, threat.radius, threat.norm)
    share = (clean.gather(1, y[:, None]) - clean.gather(1, 1 - y[:, None]))[:, 0] / gain
    kept = (share > 0.3) & (share < 0.7)
    assert kept.sum() >= 10
    return x[kept], y[kept]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", ["pgd", "apgd", "fab"])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_attacks_in_the_pool_break_with_a_source_what_the_models_own_gradient_hides(norm, kind, wrong):
    if (norm, wrong) == ("l1", "scrambled"):
        pytest.skip("a sparse step along half of the right signs is a good step")
    honest, attack = Linear(), attack_of(norm, kind)
    model = Wrong(honest, WRONG[wrong])
    x, y = breakable(model, honest, attack.threat)
    inputs = AttackInputs(x, y, torch.arange(len(x)), honest(x).detach())

    def broken(source):
        record = Pool(source, CPU, len(x), Verifier(model, CPU), every=2).run(attack, inputs)
        assert (model(record.x_adv).argmax(dim=1) != y)[torch.as_tensor(record.broken)].all()
        return int(record.broken.sum())

    assert broken(model) < len(x)
    assert broken(through(model, honest)) == len(x)
    if kind != "fab":  # it needs the length of the gradient too, and noise in that makes it stop short of the boundary
        assert broken(estimated(model, 0.01, samples=400)) == len(x)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_ripple_that_stops_pgd_does_not_stop_it_with_smoothing(norm):
    honest, attack = Linear(), attack_of(norm, "pgd")
    model = nn.Sequential(RippledInput(2000.0, 0.002), honest)
    x, y = breakable(model, honest, attack.threat)
    assert attack.run(model, x, y).fooled.sum() < len(x)
    assert attack.run(smoothed(model, 0.02, samples=64), x, y).fooled.all()


# ---------------------------------------------------------------- refusals


def test_settings_and_surrogates_that_do_not_fit_are_refused():
    model = Linear()
    for make in (smoothed, estimated):
        for sigma in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(UserError, match="sigma is the deviation of the noise"):
                make(model, sigma)
        with pytest.raises(UserError, match="samples must be at least 1, found 0"):
            make(model, 0.1, samples=0)
    with pytest.raises(UserError, match="samples must be even, found 3"):
        estimated(model, 0.1, samples=3)
    with pytest.raises(UserError, match="grid must be at least 1, found 0"):
        estimated(model, 0.1, grid=0)
    with pytest.raises(UserError, match="must be at least 1, found 0"):
        averaged(model, 0)
    x, weights = points(dtype=torch.float32), torch.ones(3, 2)
    with pytest.raises(UserError, match=r"the surrogate must return logits of shape \(3, 2\), found shape \(3, 5\)"):
        through(model, Linear(5))(x.requires_grad_()).sum().backward()
    with pytest.raises(UserError, match=r"the surrogate must return logits of shape .*, found str"):
        gradient_at(through(model, lambda x: "logits"), x, weights)


def test_a_model_that_cuts_the_path_to_its_input_has_a_zero_gradient_and_can_be_estimated():
    model, x, weights = Wrong(Linear(), 0.0), points(dtype=torch.float32), torch.tensor([[1.0, -1.0]] * 3)

    class Detached(nn.Module):
        def forward(self, x):
            return model(x.detach()).detach()

    for cut in (model, Detached()):
        assert not gradient_at(smoothed(cut, 0.1, samples=2), x, weights).any()
        assert gradient_at(estimated(cut, 0.1, samples=2), x, weights).any()
