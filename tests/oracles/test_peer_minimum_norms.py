"""The smallest perturbations that our attacks find beside foolbox's: `pip install foolbox`, then `pytest -m oracle`.

Deterministic searches are compared image by image, those that draw random numbers by their mean over images. foolbox
divides HopSkipJump's gradient estimate by its norm over the whole batch, which shortens every step of a batch of many:
it gets one image at a time.
"""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from hardtack.attacks import DDN, EAD, Boundary, DeepFool, HopSkipJump

pytestmark = pytest.mark.oracle
foolbox = pytest.importorskip("foolbox")
theirs = foolbox.attacks

SIZES = {
    "l2": lambda change: change.flatten(1).norm(dim=1),
    "linf": lambda change: change.flatten(1).abs().amax(dim=1),
    "l1": lambda change: change.flatten(1).abs().sum(dim=1),
}
EAD_SHORT = {"steps": 100, "initial_const": 1e-3, "binary_search_steps": 6, "abort_early": False}


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1), nn.GELU())
        net = nn.Sequential(body, nn.Flatten(), nn.Linear(8 * 8 * 8, 5)).eval()
    net[-1].weight.data *= 5
    return net


NET = network()
X = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(2))
Y = NET(X).argmax(dim=1)


def peer_sizes(attack, norm, count=32, each=32):
    """Of what foolbox finds for the first images, `each` at a time; infinite where it finds nothing."""
    model, found = foolbox.PyTorchModel(NET, bounds=(0, 1), device="cpu"), []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - the peer draws from it
        for start in range(0, count, each):
            rows = slice(start, start + each)
            found.append(attack(model, X[rows], Y[rows], epsilons=None)[1])
    x_adv = torch.cat(found)
    sizes = SIZES[norm](x_adv - X[:count])
    return torch.where(NET(x_adv).argmax(dim=1) != Y[:count], sizes, torch.inf)


def ratios(attack, peer, norm, count=32, each=32):
    """Our sizes over theirs, where both found something."""
    x_adv, _ = attack.distances(NET, X[:count], Y[:count])
    assert (NET(x_adv).argmax(dim=1) != Y[:count]).all()
    both = SIZES[norm](x_adv - X[:count]) / peer_sizes(peer, norm, count, each)
    assert (both > 0).float().mean() > 0.85, "the peer finds nothing on too many images to compare with"
    return both[both > 0]


SAME = {
    "ddn": ("l2", DDN(threat="l2:9"), theirs.DDNAttack(init_epsilon=1.0, steps=100)),
    "ead": ("l1", EAD(threat="l1:99", steps=100, searches=6), theirs.EADAttack(regularization=1e-3, **EAD_SHORT)),
    "ead, l1 rule": (
        "l1", EAD(threat="l1:99", steps=100, searches=6, rule="l1", beta=0.01),
        theirs.EADAttack(regularization=1e-2, decision_rule="L1", **EAD_SHORT),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_sizes_image_by_image(name):
    norm, ours, peer = SAME[name]
    found = ratios(ours, peer, norm)
    assert found.min() > 0.99 and found.max() < 1.01 and abs(found.median() - 1) < 1e-3


@pytest.mark.parametrize(
    "name, wrong", [("ddn", {"gamma": 0.04}), ("ead", {"beta": 2e-3}), ("ead, l1 rule", {"searches": 7})]
)
def test_other_settings_are_noticed(name, wrong):
    norm, ours, peer = SAME[name]
    found = ratios(dataclasses.replace(ours, **wrong), peer, norm)
    assert not (found.min() > 0.99 and found.max() < 1.01 and abs(found.median() - 1) < 1e-3)


@pytest.mark.parametrize("norm, peer", [("l2", theirs.L2DeepFoolAttack()), ("linf", theirs.LinfDeepFoolAttack())])
def test_deepfool_is_as_close(norm, peer):
    """The peer chooses candidates anew at every step, and extends each step instead of their sum."""
    found = ratios(DeepFool(threat=f"{norm}:1" if norm == "linf" else "l2:9"), peer, norm)
    assert abs(found.median() - 1) < 0.02 and found.min() > 0.8 and found.max() < 1.1
    one = ratios(DeepFool(threat="l2:9", overshoot=0.2), theirs.L2DeepFoolAttack(), "l2")
    assert one.median() > 1.1, "a larger overshoot is noticed"


RANDOM = {
    "boundary": ("l2", Boundary(threat="l2:9", steps=3000), theirs.BoundaryAttack(steps=3000), 32, {"steps": 1200}),
    "hopskipjump, l2": ("l2", HopSkipJump(threat="l2:9", steps=8), theirs.HopSkipJumpAttack(steps=8), 1, {"steps": 2}),
    "hopskipjump, linf": (
        "linf", HopSkipJump(threat="linf:1", steps=8), theirs.HopSkipJumpAttack(steps=8, constraint="linf"), 1,
        {"steps": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_random_searches_are_as_close_on_average(name):
    norm, ours, peer, each, weaker = RANDOM[name]
    count = 32 if each > 1 else 16
    found = ratios(ours, peer, norm, count, each).log().mean().exp()
    assert 0.8 < found < 1.15
    x_adv, _ = dataclasses.replace(ours, **weaker).distances(NET, X[:count], Y[:count])
    full, _ = ours.distances(NET, X[:count], Y[:count])
    lost = (SIZES[norm](x_adv - X[:count]) / SIZES[norm](full - X[:count])).log().mean().exp()
    assert found * lost > 1.15, "a shorter search is noticed"
