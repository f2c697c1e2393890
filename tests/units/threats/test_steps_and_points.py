"""Steepest steps and random points of each ball."""

import math

import pytest
import torch
from scipy import stats

from hardtack.base.randomness import make_keys
from hardtack.threats import BALLS
from hardtack.threats.balls import l1_step

NORMS = ["linf", "l2", "l1"]
every_norm = pytest.mark.parametrize("norm", NORMS)
SHAPE = (3, 4, 5)
PIXELS = math.prod(SHAPE)
GREY = torch.full((4000, *SHAPE), 0.5)
KEYS = make_keys(torch.arange(len(GREY)), 11)
EPS = {"linf": 0.1, "l2": 0.1, "l1": 0.1}  # small enough that a grey image never meets the box


def draw(count=8, seed=0, shape=SHAPE):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator), torch.rand(count, *shape, generator=generator)


def inner(a, b):
    return (a.double() * b.double()).flatten(1).sum(dim=1)


# ---------------------------------------------------------------- steepest steps


@pytest.mark.parametrize("norm, dual", [("linf", 1), ("l2", 2)])
def test_the_step_reaches_the_dual_norm(norm, dual):
    """max ⟨g, s⟩ over ‖s‖ ≤ r is r times the dual norm of g (Hölder), and nothing can exceed it."""
    gradient, x = draw()
    step = BALLS[norm].steepest_step(gradient, x, 0.3)
    assert torch.allclose(BALLS[norm].size(step), torch.tensor(0.3), rtol=1e-6)
    best = 0.3 * gradient.double().flatten(1).norm(p=dual, dim=1)
    assert torch.allclose(inner(gradient, step), best, rtol=1e-6)


def test_the_l1_step_of_one_pixel_reaches_the_dual_norm():
    gradient, x = draw()[0], GREY[:8]
    step = l1_step(gradient, x, 0.3, density=1 / PIXELS)
    assert torch.allclose(inner(gradient, step), 0.3 * gradient.double().flatten(1).abs().amax(dim=1), rtol=1e-6)
    assert (step != 0).flatten(1).sum(dim=1).tolist() == [1] * len(x)


@pytest.mark.parametrize("density", [0.05, 0.2, 1.0])
def test_the_l1_step_is_best_among_equal_steps_on_as_many_pixels(density):
    gradient, x = draw()[0], GREY[:8]
    step = l1_step(gradient, x, 0.3, density=density)
    count = round(density * PIXELS)
    assert torch.allclose(step.flatten(1).abs().sum(dim=1), torch.tensor(0.3), rtol=1e-6)
    assert (step != 0).flatten(1).sum(dim=1).tolist() == [count] * len(x)
    assert torch.allclose(step[step != 0].abs(), torch.tensor(0.3 / count), rtol=1e-6)
    largest = gradient.double().flatten(1).abs().sort(dim=1, descending=True).values[:, :count]
    assert torch.allclose(inner(gradient, step), 0.3 / count * largest.sum(dim=1), rtol=1e-6)


def knapsack(gradient, x, length, share):
    """max ⟨g, s⟩ over ‖s‖₁ ≤ length, |s_i| ≤ share, x + s in the box, pixel by pixel."""
    best = []
    for g, pixels in zip(gradient.double().flatten(1), x.double().flatten(1), strict=True):
        left, value = length, 0.0
        for i in g.abs().argsort(descending=True).tolist():
            taken = min(left, share, (1 - pixels[i] if g[i] > 0 else pixels[i]).item())
            left, value = left - taken, value + taken * g[i].abs().item()
        best.append(value)
    return torch.tensor(best, dtype=torch.float64)


@pytest.mark.parametrize("length", [0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("density", [1 / PIXELS, 0.05, 0.5])
def test_what_the_box_refuses_one_pixel_goes_to_the_next(length, density):
    gradient, x = draw()
    step = l1_step(gradient, x, length, density=density)
    best = knapsack(gradient, x, length, length / max(1, round(density * PIXELS)))
    assert torch.allclose(inner(gradient, step), best, rtol=1e-5)
    assert (x + step).min() >= -1e-6 and (x + step).max() <= 1 + 1e-6
    assert (step.flatten(1).abs().sum(dim=1) <= length * (1 + 1e-5)).all()


def test_the_l1_step_passes_over_pixels_that_cannot_move():
    gradient, x = draw(count=1)
    order = gradient.flatten().abs().argsort(descending=True)
    flat = x.flatten().clone()
    flat[order[:5]] = (gradient.flatten()[order[:5]] > 0).float()  # on the face they would be pushed through
    flat[order[5]] = (gradient.flatten()[order[5]] < 0).float()  # on the other face: free to move
    step = l1_step(gradient, flat.reshape(x.shape), 0.3, density=1 / PIXELS).flatten()
    assert step.nonzero().flatten().tolist() == [order[5].item()]
    stuck = (gradient > 0).float()
    assert not BALLS["l1"].steepest_step(gradient, stuck, 0.3).any(), "nothing can move: no step, and no NaN"


@every_norm
def test_no_gradient_no_step(norm):
    gradient, x = draw()
    gradient[::2] = 0
    step = BALLS[norm].steepest_step(gradient, x, 0.3)
    assert step.isfinite().all()
    assert not step[::2].any() and (BALLS[norm].size(step)[1::2] > 0.29).all()


@every_norm
@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-10, 1e10, 1e25])
def test_the_scale_of_the_gradient_does_not_matter(norm, scale):
    """A saturated softmax has gradients of 1e-25 that still point the right way."""
    gradient, x = draw()
    step = BALLS[norm].steepest_step(gradient * scale, x, 0.3)
    assert torch.allclose(BALLS[norm].size(step), torch.tensor(0.3), rtol=1e-4)
    plain = BALLS[norm].steepest_step(gradient, x, 0.3)
    assert torch.allclose(step, plain, rtol=1e-3, atol=1e-6)


@every_norm
def test_every_image_steps_alone_and_at_its_own_length(norm):
    gradient, x = draw()
    lengths = torch.linspace(0.1, 0.8, len(x))
    together = BALLS[norm].steepest_step(gradient, x, lengths)
    for i in range(len(x)):
        alone = BALLS[norm].steepest_step(gradient[i : i + 1], x[i : i + 1], lengths[i].item())
        assert torch.equal(together[i : i + 1], alone)


def test_wrong_steps_are_caught():
    gradient, x = draw()
    best = 0.3 * gradient.double().flatten(1).norm(dim=1)
    sign_as_l2 = gradient.sign() * 0.3 / math.sqrt(PIXELS)
    assert not torch.allclose(inner(gradient, sign_as_l2), best, rtol=1e-2)
    assert not torch.allclose(inner(gradient, -BALLS["l2"].steepest_step(gradient, x, 0.3)), best, rtol=1e-2)


# ---------------------------------------------------------------- random points


def radii(norm):
    return BALLS[norm].size(BALLS[norm].random_point(GREY, EPS[norm], KEYS) - GREY) / EPS[norm]


@every_norm
def test_random_points_fill_the_ball_evenly(norm):
    """Uniform in a ball of d dimensions: the radius is distributed as r^d, whatever the norm."""
    found = radii(norm).double()
    assert found.max() <= 1 + 1e-5
    assert stats.kstest((found**PIXELS).clamp(max=1).numpy(), "uniform").pvalue > 1e-3


@every_norm
def test_random_points_have_no_favourite_direction(norm):
    delta = (BALLS[norm].random_point(GREY, EPS[norm], KEYS) - GREY).flatten(1).double()
    spread = delta.std(dim=0)
    assert (delta.mean(dim=0).abs() < 5 * spread / math.sqrt(len(delta))).all()
    assert spread.max() / spread.min() < 1.25
    correlation = torch.corrcoef(delta.T) - torch.eye(PIXELS)
    assert correlation.abs().max() < 5.5 / math.sqrt(len(delta))


def test_a_wrong_radius_is_caught():
    """Mutant: a direction at a radius uniform in [0, eps] crowds the centre."""
    crowded = torch.rand(4000, generator=torch.Generator().manual_seed(0)).double()
    assert stats.kstest((crowded**PIXELS).numpy(), "uniform").pvalue < 1e-3


@every_norm
@pytest.mark.parametrize("corner", [0.0, 1.0, None])
def test_random_points_are_inside_ball_and_box(norm, corner):
    x = torch.rand(64, *SHAPE) if corner is None else torch.full((64, *SHAPE), corner)
    for eps in (0.0, 0.03, 0.7, 5.0):
        point = BALLS[norm].random_point(x, eps, KEYS[:64])
        assert point.min() >= 0 and point.max() <= 1 and point.isfinite().all() and point.dtype == torch.float32
        assert (BALLS[norm].size(point - x) <= eps * (1 + 1e-6) + 2e-7).all()
    assert torch.equal(BALLS[norm].random_point(x, 0.0, KEYS[:64]), x)


@every_norm
def test_random_points_belong_to_their_keys(norm):
    x = torch.rand(32, *SHAPE)
    whole = BALLS[norm].random_point(x, 0.3, KEYS[:32])
    assert torch.equal(whole, BALLS[norm].random_point(x, 0.3, KEYS[:32]))
    assert torch.equal(whole[7:9], BALLS[norm].random_point(x[7:9], 0.3, KEYS[7:9]))
    assert (whole != BALLS[norm].random_point(x, 0.3, KEYS[32:64])).flatten(1).any(dim=1).all()


@every_norm
def test_random_points_take_a_radius_per_image(norm):
    x = torch.full((32, *SHAPE), 0.5)
    eps = torch.linspace(0, 0.3, 32)
    point = BALLS[norm].random_point(x, eps, KEYS[:32])
    assert (BALLS[norm].size(point - x) <= eps * (1 + 1e-6) + 2e-7).all()
    assert torch.equal(point[9:10], BALLS[norm].random_point(x[9:10], eps[9].item(), KEYS[9:10]))
