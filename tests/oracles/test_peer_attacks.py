"""Our ascent beside foolbox's, which shares no code with it: `pip install foolbox`, then `pytest -m oracle`.

Iterates can be compared one by one where the recipes agree: linf, and l2 while the box does not bind (foolbox
clips after projecting to the ball, ours is the exact projection to the intersection). Where they differ, ours
may not be weaker.
"""

import pytest
import torch
from torch import nn

from hardtack.attacks import Ascent

pytestmark = pytest.mark.oracle
foolbox = pytest.importorskip("foolbox")


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1), nn.GELU())
        net = nn.Sequential(body, nn.Flatten(), nn.Linear(8 * 8 * 8, 5)).eval()
    net[-1].weight.data *= 5
    return net


def batch(net, count=64, low=0.0, high=1.0):
    x = low + (high - low) * torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return x, net(x).argmax(1)


def peer(attack, net, x, y, eps):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
        _, clipped, success = attack(model, x, y, epsilons=eps)
    return clipped, success


PEERS = {
    "linf": foolbox.attacks.LinfPGD,
    "l2": foolbox.attacks.L2PGD,
    "l1": foolbox.attacks.SparseL1DescentAttack,
}


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize("low, high", [(0.0, 1.0), (0.4, 0.6)])
def test_linf_iterates_are_the_peers(steps, low, high):
    net = network()
    x, y = batch(net, low=low, high=high)
    theirs, _ = peer(PEERS["linf"](rel_stepsize=0.1, steps=steps, random_start=False), net, x, y, 0.03)
    ours = Ascent(threat="linf:0.03", steps=steps, relative_step=0.1, start="clean", keep="last")(net, x, y)
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_l2_iterates_are_the_peers_inside_the_box(steps):
    net = network()
    x, y = batch(net, low=0.4, high=0.6)
    theirs, _ = peer(PEERS["l2"](rel_stepsize=0.1, steps=steps, random_start=False), net, x, y, 0.3)
    ours = Ascent(threat="l2:0.3", steps=steps, relative_step=0.1, start="clean", keep="last")(net, x, y)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_fgsm_is_the_peers():
    net = network()
    x, y = batch(net)
    theirs, _ = peer(foolbox.attacks.FGSM(), net, x, y, 0.02)
    ours = Ascent(threat="linf:0.02", steps=1, relative_step=1, start="clean", keep="last")(net, x, y)
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    "norm, eps", [("linf", 0.01), ("linf", 0.02), ("l2", 0.1), ("l2", 0.2), ("l1", 1.0), ("l1", 2.0)]
)
def test_we_fool_no_fewer_images_than_the_peer(norm, eps):
    """Same radius and steps, random starts of each library's own; a few images of 256 are noise."""
    net = network(seed=1)
    x, y = batch(net, count=256)
    settings = {"steps": 20} if norm == "l1" else {"steps": 20, "rel_stepsize": 0.125}
    _, theirs = peer(PEERS[norm](**settings), net, x, y, eps)
    found = Ascent(threat=f"{norm}:{eps}", steps=20, keep="last").run(net, x, y)
    ours = found.fooled.sum().item()
    assert found.fooled.any() and not found.fooled.all(), "eps tells nothing apart"
    assert ours >= theirs.sum().item() - 4, f"{ours} of 256, the peer {theirs.sum().item()}"
    if norm == "linf":
        assert ours <= theirs.sum().item() + 8


def test_the_comparison_can_fail():
    """Mutants: a step of the wrong length, one step too few."""
    net = network()
    x, y = batch(net)
    theirs, _ = peer(PEERS["linf"](rel_stepsize=0.1, steps=5, random_start=False), net, x, y, 0.03)
    for wrong in ({"relative_step": 0.11, "steps": 5}, {"relative_step": 0.1, "steps": 4}):
        ours = Ascent(threat="linf:0.03", start="clean", keep="last", **wrong)(net, x, y)
        assert not torch.allclose(ours, theirs, atol=1e-6)
