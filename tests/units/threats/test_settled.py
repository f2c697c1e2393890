"""On a CPU Newton's method stops where a step changes nothing: to the last bit what all of its steps give."""

import pytest
import torch

from hardtack.threats import balls, planes


def problems(seed, count=16):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, 8, 8, generator=generator)
    x[: count // 2] = x[: count // 2].round()
    w = torch.randn(x.shape, generator=generator) * 10.0 ** (3 * torch.randn(1, generator=generator))
    w[0] = 0
    gap = torch.randn(count, generator=generator) * w.abs().sum() / count * torch.rand(1, generator=generator)
    z = x + torch.randn(x.shape, generator=generator) * 10.0 ** torch.randn(1, generator=generator)
    return x, w, gap, z, 4 * float(torch.rand(1, generator=generator))


def solved(seed):
    x, w, gap, z, eps = problems(seed)
    return [*(planes.TO_PLANE[norm](x, w, gap) for norm in ("linf", "l2")), balls.l2_project(z, x, eps)]


def steps(seed):
    """How often the solvers look whether they may stop."""
    looks = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balls, "can_look", lambda x: looks.append(1) or True)
        solved(seed)
    return len(looks)


def differs(seed, patch):
    early = solved(seed)
    patch.setattr(balls, "can_look", lambda x: False)
    patch.setattr(planes, "_split", lambda gain, slope, free: (torch.where(free, 0, gain), torch.where(free, slope, 0)))
    return any(not torch.equal(one, other) for one, other in zip(early, solved(seed), strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_stopping_changes_no_bit_and_saves_steps(seed, monkeypatch):
    assert steps(seed) < 36
    assert not differs(seed, monkeypatch)


def test_stopping_too_soon_shows(monkeypatch):
    late = [solution for seed in range(5) for solution in solved(seed)]
    monkeypatch.setattr(torch, "equal", lambda a, b: True)
    early = [solution for seed in range(5) for solution in solved(seed)]
    assert sum(not bool((a == b).all()) for a, b in zip(early, late, strict=True)) > 7
