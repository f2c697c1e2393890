"""Projection onto ball ∩ box against solvers that share nothing with ours, in float64.

The projection of z is the one point of a convex set that is nearest to z. `nearest` finds it from the
optimality conditions, by bisection on the multiplier of the budget (ours solves by Newton's method and by a
secant, in fp32); scipy's SLSQP, which knows nothing of them, vouches for `nearest` in small dimensions.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from hardtack.threats import BALLS, Threat

NORMS = ["linf", "l2", "l1"]
every_norm = pytest.mark.parametrize("norm", NORMS)
# Pixels are stored in fp32: one rounding of x + delta is 6e-8, and sums over d pixels add a few more.
PIXEL_TOLERANCE = 2e-6


def size(delta, norm):
    rows = delta.flatten(1)
    return {"linf": rows.abs().amax(1), "l2": rows.square().sum(1).sqrt(), "l1": rows.abs().sum(1)}[norm]


def nearest(z, x, eps, norm):
    """The projection, from the stationarity of ½‖p − z‖² + λ·budget(p − x) over the box, in float64."""
    z, x = z.double(), x.double()
    eps = torch.as_tensor(eps, dtype=torch.float64).reshape(-1, 1, 1, 1)
    if norm == "linf":
        return z.clamp((x - eps).clamp_min(0), (x + eps).clamp_max(1))

    def stationary(multiplier):
        delta = z - x
        if norm == "l2":
            return (x + delta / (1 + multiplier)).clamp(0, 1)
        return (x + (delta - delta.clamp(-multiplier, multiplier))).clamp(0, 1)

    def outside(point):
        return (size(point - x, norm) > eps.flatten()).reshape(-1, 1, 1, 1)

    low = torch.zeros(len(x), 1, 1, 1, dtype=torch.float64)
    high = torch.full_like(low, 1e-12)
    for _ in range(70):
        high = torch.where(outside(stationary(high)), high * 2, high)
    for _ in range(100):
        middle = (low + high) / 2
        over = outside(stationary(middle))
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    free = stationary(torch.zeros_like(low))
    return torch.where(outside(free), stationary(high), free)


def distance(point, z):
    return (point.double() - z.double()).flatten(1).norm(dim=1)


def images(kind, count=6, shape=(3, 5, 7), seed=0):
    """Clean images, and points to project: near, far outside, from the corners of the box."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, *shape, generator=generator)
    noise = torch.randn(count, *shape, generator=generator)
    if kind == "inactive box":
        return 0.4 + 0.2 * x, 0.4 + 0.2 * x + 0.05 * noise
    if kind == "active box":
        return x, x + 0.4 * noise
    if kind == "corners":
        return x.round(), x.round() + 0.4 * noise
    if kind == "outside the box":
        return x, x + 10 * noise
    if kind == "heavy tails":
        return x, x + noise.sign() * torch.exp(2 * noise) * 0.1
    if kind == "sparse":
        return x, x + noise * (noise.abs() > 1.5)
    raise KeyError(kind)


KINDS = ["inactive box", "active box", "corners", "outside the box", "heavy tails", "sparse"]
RADII = {"linf": (0.01, 8 / 255, 0.3), "l2": (0.05, 0.5, 2.0, 4.0), "l1": (0.1, 1.0, 5.0, 20.0)}


def is_optimal(project, norm, kind, eps, seed=0):
    """Whether `project` gives the nearest feasible point, up to fp32."""
    x, z = images(kind, seed=seed)
    found, best = project(z, x, eps), nearest(z, x, eps, norm)
    feasible = (size(found.double() - x.double(), norm) <= eps * (1 + 1e-6) + 1e-6).all()
    boxed = found.min() >= 0 and found.max() <= 1
    # |z| enters the arithmetic, so its rounding is part of what fp32 can promise
    close = (found.double() - best).abs().max() <= PIXEL_TOLERANCE * max(1.0, z.abs().max().item())
    return bool(feasible and boxed and close)


@every_norm
@pytest.mark.parametrize("kind", KINDS)
def test_the_projection_is_the_nearest_point(norm, kind):
    for eps in RADII[norm]:
        for seed in range(3):
            assert is_optimal(BALLS[norm].project, norm, kind, eps, seed), (eps, seed)


# ---------------------------------------------------------------- the reference itself


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("seed", range(6))
def test_a_general_solver_finds_the_same_point(norm, seed):
    kind = KINDS[seed % 3]
    x, z = images(kind, count=1, shape=(3, 1, 2), seed=seed)
    eps = {"l2": 0.25, "l1": 0.5}[norm]
    flat_x, flat_z = x.double().flatten().numpy(), z.double().flatten().numpy()
    found = BALLS[norm].project(z, x, eps)
    solved = torch.from_numpy(_solve(flat_z, flat_x, eps, norm)).reshape(x.shape)
    assert (solved - nearest(z, x, eps, norm)).abs().max() < 1e-5
    assert (solved - found.double()).abs().max() < 1e-5
    assert distance(found, z) <= distance(solved, z) + 1e-6


def _solve(z, x, eps, norm):
    """SLSQP on the plain problem; l1 split into rises and falls so that everything is smooth."""
    d = len(x)
    if norm == "l2":
        bounds, constraint = [(0, 1)] * d, {"type": "ineq", "fun": lambda p: eps**2 - ((p - x) ** 2).sum()}
        result = minimize(
            lambda p: 0.5 * ((p - z) ** 2).sum(), x, jac=lambda p: p - z,
            bounds=bounds, constraints=constraint, options={"maxiter": 500, "ftol": 1e-14},
        )  # fmt: skip
        return result.x
    bounds = [(0, 1 - value) for value in x] + [(0, value) for value in x]

    def point(parts):
        return x + parts[:d] - parts[d:]

    result = minimize(
        lambda parts: 0.5 * ((point(parts) - z) ** 2).sum(), np.zeros(2 * d),
        jac=lambda parts: np.concatenate([point(parts) - z, z - point(parts)]),
        bounds=bounds, constraints={"type": "ineq", "fun": lambda parts: eps - parts.sum()},
        options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    return point(result.x)


def _clip_after(z, x, eps, norm):
    """The usual shortcut: project to the ball, then clip to the box. Feasible, but not the nearest point."""
    free = nearest(z * 1e-3 + 0.5 - x * 1e-3, torch.full_like(x, 0.5), eps * 1e-3, norm)  # a box that cannot bind
    return (x + (free - 0.5).float() * 1e3).clamp(0, 1)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_clipping_after_an_ordinary_projection_is_caught(norm):
    def shortcut(z, x, eps):
        return _clip_after(z, x, eps, norm)

    x, z = images("inactive box")
    eps = RADII[norm][1]
    assert (shortcut(z, x, eps).double() - nearest(z, x, eps, norm)).abs().max() < 1e-4, "the shortcut is itself right"
    assert not is_optimal(shortcut, norm, "active box", eps)
    assert not is_optimal(shortcut, norm, "corners", eps)


@every_norm
def test_other_mutants_are_caught(norm):
    ball, eps = BALLS[norm], RADII[norm][1]
    assert not is_optimal(lambda z, x, eps: z.clamp(0, 1), norm, "active box", eps), "no ball"
    assert not is_optimal(lambda z, x, eps: ball.project(z, x, eps * 0.99), norm, "active box", eps), "too small"
    assert not is_optimal(lambda z, x, eps: ball.project(z, x, eps * 1.001), norm, "active box", eps), "too big"
    assert not is_optimal(lambda z, x, eps: x, norm, "active box", eps), "no step at all"


# ---------------------------------------------------------------- properties


@every_norm
def test_points_inside_stay_where_they_are(norm):
    x, z = images("active box")
    inside = x + 0.999 * (BALLS[norm].project(z, x, RADII[norm][1]) - x)
    again = BALLS[norm].project(inside, x, RADII[norm][1])
    assert (again - inside).abs().max() <= 6e-8  # x + (z − x) may round once
    assert torch.equal(BALLS[norm].project(x, x, RADII[norm][1]), x)


@every_norm
@pytest.mark.parametrize("kind", KINDS)
def test_projecting_twice_is_projecting_once(norm, kind):
    x, z = images(kind)
    once = BALLS[norm].project(z, x, RADII[norm][1])
    assert (BALLS[norm].project(once, x, RADII[norm][1]) - once).abs().max() < 1e-6


@every_norm
@pytest.mark.parametrize("kind", KINDS)
def test_a_ball_without_radius_is_its_centre(norm, kind):
    x, z = images(kind)
    assert torch.equal(BALLS[norm].project(z, x, 0.0), x)


@every_norm
@pytest.mark.parametrize("kind", KINDS)
def test_a_ball_larger_than_the_box_leaves_the_box(norm, kind):
    x, z = images(kind)
    assert (BALLS[norm].project(z, x, 1e6) - z.clamp(0, 1)).abs().max() < 1e-6


@every_norm
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-7, 1e3, 1e6])
def test_tiny_and_huge_points_stay_feasible(norm, scale):
    x, noise = images("corners")[0], torch.randn(6, 3, 5, 7, generator=torch.Generator().manual_seed(1))
    for eps in (1e-4, *RADII[norm]):
        threat = Threat(norm, eps)
        found = threat.project(x + noise * scale, x)
        assert found.isfinite().all() and threat.contains(found, x).all(), eps


@every_norm
def test_every_image_may_have_its_own_radius(norm):
    x, z = images("active box")
    eps = torch.linspace(0, RADII[norm][-1], len(x))
    together = BALLS[norm].project(z, x, eps)
    alone = torch.cat([BALLS[norm].project(z[i : i + 1], x[i : i + 1], eps[i].item()) for i in range(len(x))])
    assert torch.equal(together, alone)
    assert (together.double() - nearest(z, x, eps, norm)).abs().max() < PIXEL_TOLERANCE
    assert torch.equal(BALLS[norm].project(z, x, torch.tensor(0.3)), BALLS[norm].project(z, x, 0.3))


@every_norm
def test_an_image_is_projected_as_if_alone(norm):
    x, z = images("active box")
    whole = BALLS[norm].project(z, x, RADII[norm][1])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    assert torch.equal(BALLS[norm].project(z[order], x[order], RADII[norm][1]), whole[order])
    assert BALLS[norm].project(z[:0], x[:0], RADII[norm][1]).shape == (0, 3, 5, 7)


@every_norm
def test_large_images_stay_inside_and_optimal(norm):
    """150,528 pixels: sums in fp32 must not push a point over the edge that `contains` checks."""
    x, z = images("active box", count=1, shape=(3, 224, 224))
    for eps in {"linf": (4 / 255,), "l2": (3.0,), "l1": (75.0,)}[norm]:
        found = Threat(norm, eps).project(z, x)
        assert Threat(norm, eps).contains(found, x).all()
        assert (found.double() - nearest(z, x, eps, norm)).abs().max() < PIXEL_TOLERANCE


@every_norm
def test_double_images_are_projected_in_double(norm):
    x, z = (value.double() for value in images("active box"))
    found = BALLS[norm].project(z, x, RADII[norm][1])
    assert found.dtype == torch.float64
    assert (found - nearest(z, x, RADII[norm][1], norm)).abs().max() < 1e-8


def test_large_images_stay_in_the_l1_ball_after_rounding():
    """Adding the perturbation to x rounds 150,000 pixels; each must be rounded into the ball, not out of it."""
    noise = torch.Generator().manual_seed(0)
    x = torch.rand(4, 3, 224, 224, generator=noise)
    z = x + 0.05 * torch.randn(x.shape, generator=noise)
    for radius in ("l1:0.5", "l1:12"):
        threat = Threat.parse(radius)
        found = threat.project(z, x)
        assert threat.contains(found, x).all()
        assert (threat.size(found - x) > 0.98 * threat.radius).all()
