"""The shortest way to a hyperplane inside the box, against a solver that shares nothing with ours.

`shortest` bisects, in float64, the size of the ball: the plane is within reach of ball ∩ box exactly when the
most that can be gained there fills the gap. scipy's linear programmes vouch for it in linf and l1.
"""

import pytest
import torch
from scipy.optimize import linprog

from hardtack.threats import BALLS
from hardtack.threats.planes import TO_PLANE, distance_to_plane

every_norm = pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
SHAPE = (3, 4, 5)
COUNT = 24


def planes(kind, count=COUNT, shape=SHAPE, seed=0):
    """Images, normals and gaps: planes on either side, at a share of the most that the box allows to gain."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, *shape, generator=generator)
    w = torch.randn(count, *shape, generator=generator)
    side = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)
    share = {"near": 0.01, "half": 0.5, "far": 0.95, "unreachable": 1.3}.get(kind, 0.6)
    if kind == "zeros":
        w = w * (torch.rand(w.shape, generator=generator) > 0.5)
    if kind == "corners":
        x = x.round()
    if kind == "heavy tails":
        w = w * torch.exp(3 * torch.randn(w.shape, generator=generator))
    if kind == "tiny":
        w = w * 1e-20
    return x, w, side * share * most(x, w, side)


def most(x, w, side):
    """The largest |w·d| towards that side inside the box."""
    towards = w * side.reshape(-1, 1, 1, 1)
    return (towards.abs() * torch.where(towards > 0, 1 - x, x)).flatten(1).sum(dim=1)


def gain_within(size, weight, room, norm):
    """The most that a displacement of this size gains, in float64."""
    if norm == "linf":
        return (weight * room.clamp(max=size)).sum()
    if norm == "l1":
        order = weight.argsort(descending=True)
        before = room[order].cumsum(0) - room[order]
        return (weight[order] * torch.minimum(room[order], (size - before).clamp_min(0))).sum()
    low, high = torch.zeros((), dtype=torch.float64), torch.full((), 1e40, dtype=torch.float64)
    for _ in range(150):
        middle = (low * high).sqrt() if low > 0 else high * 1e-9 if high > 1e-30 else high / 2
        over = torch.minimum(middle * weight, room).norm() > size
        low, high = (low, middle) if over else (middle, high)
    return (weight * torch.minimum(low * weight, room)).sum()


def shortest(x, w, gap, norm):
    """The size of the shortest displacement onto the plane, image by image."""
    sizes = []
    for image, normal, missing in zip(x.double(), w.double(), gap.double(), strict=True):
        towards = (normal * missing.sign()).flatten()
        room = torch.where(towards > 0, 1 - image.flatten(), image.flatten())
        low, high = 0.0, float(x[0].numel())
        for _ in range(40):
            middle = (low + high) / 2
            enough = gain_within(middle, towards.abs(), room, norm) >= missing.abs()
            low, high = (low, middle) if enough else (middle, high)
        sizes.append(high)
    return torch.tensor(sizes, dtype=torch.float64)


KINDS = ["near", "half", "far", "zeros", "corners", "heavy tails", "tiny"]


@every_norm
@pytest.mark.parametrize("kind", KINDS)
def test_the_displacement_ends_on_the_plane_inside_the_box_and_is_the_shortest(norm, kind):
    x, w, gap = planes(kind, 4)
    way = TO_PLANE[norm](x, w, gap)
    end = x.double() + way.double()
    assert end.amin() >= -1e-6 and end.amax() <= 1 + 1e-6
    gained = (way.double() * w.double()).flatten(1).sum(dim=1)
    assert torch.allclose(gained, gap.double(), rtol=2e-5, atol=0)
    optimum = shortest(x, w, gap, norm)
    assert torch.allclose(BALLS[norm].size(way.double()), optimum, rtol=5e-5)
    assert (way[w == 0] == 0).all(), "a pixel without weight has no reason to move"


@pytest.mark.parametrize("norm", ["linf", "l1"])
def test_linear_programmes_agree_with_the_solver_of_this_file(norm):
    """Variables: the displacement split into its rise and fall, and for linf a bound on both."""
    x, w, gap = planes("far", 3)
    optimum = shortest(x, w, gap, norm)
    for image, normal, missing, expected in zip(x.double(), w.double(), gap.double(), optimum, strict=True):
        d, flat = image.numel(), normal.flatten()
        eye = torch.eye(d, dtype=torch.float64)
        bounds = [(0, float(1 - value)) for value in image.flatten()] + [(0, float(value)) for value in image.flatten()]
        equality = torch.cat([flat, -flat])
        if norm == "l1":
            solved = linprog([1.0] * 2 * d, A_eq=equality[None].numpy(), b_eq=[float(missing)], bounds=bounds)
        else:
            below = torch.cat([eye, eye, -torch.ones(d, 1, dtype=torch.float64)], dim=1)
            equality = torch.cat([equality, torch.zeros(1, dtype=torch.float64)])
            solved = linprog(
                [0.0] * 2 * d + [1.0], A_ub=below.numpy(), b_ub=[0.0] * d,
                A_eq=equality[None].numpy(), b_eq=[float(missing)], bounds=[*bounds, (0, None)],
            )  # fmt: skip
        assert solved.status == 0 and abs(solved.fun - float(expected)) < 1e-6 * max(1, solved.fun)


@every_norm
def test_an_unreachable_plane_is_approached_up_to_the_corner(norm):
    x, w, gap = planes("unreachable")
    w[0, :, :2] = 0
    end = x + TO_PLANE[norm](x, w, gap)
    towards = w * gap.sign().reshape(-1, 1, 1, 1)
    corner = torch.where(towards > 0, 1.0, torch.where(towards < 0, 0.0, x))
    assert torch.allclose(end, corner, atol=1e-6)


@every_norm
def test_a_plane_barely_within_reach_is_reached(norm):
    x, w, _ = planes("heavy tails")
    side = torch.ones(COUNT)
    gap = 0.9999 * most(x, w, side)
    gained = (TO_PLANE[norm](x, w, gap) * w).flatten(1).sum(dim=1)
    assert torch.allclose(gained, gap, rtol=1e-3)


@every_norm
def test_no_gap_no_normal_no_move(norm):
    x, w, gap = planes("half")
    assert (TO_PLANE[norm](x, w, torch.zeros(COUNT)) == 0).all()
    assert (TO_PLANE[norm](x, torch.zeros_like(w), gap) == 0).all()


@every_norm
def test_rows_do_not_know_each_other(norm):
    x, w, gap = planes("zeros")
    whole = TO_PLANE[norm](x, w, gap)
    alone = torch.cat([TO_PLANE[norm](x[i : i + 1], w[i : i + 1], gap[i : i + 1]) for i in range(COUNT)])
    assert torch.allclose(whole, alone, atol=1e-6)


@every_norm
def test_far_from_the_box_the_distance_has_a_closed_form(norm):
    generator = torch.Generator().manual_seed(3)
    x = 0.4 + 0.2 * torch.rand(8, *SHAPE, generator=generator)
    w, gap = torch.randn(8, *SHAPE, generator=generator), 0.1 * torch.randn(8, generator=generator)
    way = TO_PLANE[norm](x, w, gap)
    dual = {"linf": w.flatten(1).abs().sum(1), "l2": w.flatten(1).norm(dim=1), "l1": w.flatten(1).abs().amax(1)}[norm]
    assert torch.allclose(distance_to_plane(norm, w, gap), gap.abs() / dual)
    assert torch.allclose(BALLS[norm].size(way), gap.abs() / dual, rtol=1e-4)


@every_norm
def test_large_images(norm):
    """At 150,528 pixels sums in fp32 still find the plane."""
    x, w, gap = planes("far", 2, (3, 224, 224))
    way = TO_PLANE[norm](x, w, gap)
    gained = (way.double() * w.double()).flatten(1).sum(dim=1)
    assert torch.allclose(gained, gap.double(), rtol=1e-4)
    assert (x + way).amin() >= -1e-6 and (x + way).amax() <= 1 + 1e-6
