"""Against the official AutoAttack, where it is installed: verdicts, searches step by step, and passes."""

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import APGD
from hardtack.attacks.pool.search import NewItems
from hardtack.evaluation.passes import OFFICIAL
from hardtack.threats import Threat

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
autoattack = pytest.importorskip("autoattack")
autopgd = pytest.importorskip("autoattack.autopgd_base")
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


class Smooth(nn.Module):
    """A small network without corners, so that two searches from one start stay together."""

    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(),
            nn.Linear(8 * 64, classes),
        )  # fmt: skip
        self.rows = [0, 0]

    def forward(self, x):
        self.rows[0] += len(x)
        out = self.body(x)
        if out.requires_grad:
            out.register_hook(self._count)
        return out

    def _count(self, gradient):
        self.rows[1] += len(gradient)


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Smooth().eval()


def data(model, count):
    x = torch.rand(count, 3, 15, 15, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return x, model(x).argmax(dim=1)


@pytest.mark.parametrize("threat", ["linf:0.03", "l2:0.5"])
@pytest.mark.parametrize("loss", ["ce", "dlr"])
def test_apgd_takes_the_official_steps(model, threat, loss):
    model, threat = model.double(), Threat.parse(threat)
    x, y = (part.double() if part.is_floating_point() else part for part in data(model.float(), 6))
    model = model.double()
    start = threat.project(x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2)).double(), x)
    peer = autopgd.APGDAttack(model, norm=NORMS[threat.norm], eps=threat.radius, n_iter=25, device="cpu", seed=0)
    peer.loss = loss
    peer.init_hyperparam(x)
    _, _, expected, _ = peer.attack_single_run(x, y, x_init=start)
    attack = APGD(threat=threat, steps=25, loss=loss, official=True)
    yes, number = torch.ones_like(y, dtype=torch.bool), torch.full_like(y, 25)
    state = attack.begin(
        NewItems(x=x, y=y, target=torch.full_like(y, -1), keys=y, image_keys=y, steps=number,
             clean=model(x).detach(), start=start,
             warm=yes, restart=torch.zeros_like(y))
    )  # fmt: skip
    for _ in range(26):
        state = {**state, **attack.advance(model, state)}
    assert torch.allclose(state["best_loss"], expected, rtol=1e-3)


@pytest.mark.parametrize("threat", ["linf:0.005", "l2:0.07", "l1:0.5"])
def test_verdicts_agree(model, threat):
    """Random starts differ, so an image on the very edge may fall to one and not to the other."""
    (x, y), threat = data(model, 24), Threat.parse(threat)
    peer = autoattack.AutoAttack(model, norm=NORMS[threat.norm], eps=threat.radius, seed=0, device="cpu", verbose=False)
    peer.square.n_queries = 200
    x_adv = peer.run_standard_evaluation(x, y, bs=24)
    with torch.no_grad():
        official = model(x_adv).argmax(dim=1) == y
    assert 0 < official.sum() < 24, "the example must have both"
    for tier in ("exact", "fast"):
        ours = ht.evaluate(model, (x, y), suite="autoattack", tier=tier, threat=threat, quiet=True).robust
        assert (torch.from_numpy(ours) != official).sum() <= 1, tier


def test_an_image_that_survives_costs_the_official_code_what_the_plan_says(model):
    x, y = data(model, 1)
    peer = autoattack.AutoAttack(model, norm="Linf", eps=1e-4, seed=0, device="cpu", verbose=False)
    model.rows = [0, 0]
    peer.run_standard_evaluation(x, y)
    checks = 7  # five forwards for randomness, one for the range of outputs, one for inner optimisation
    forwards = sum(cost.forwards for cost in OFFICIAL.values())
    backwards = sum(cost.backwards for cost in OFFICIAL.values())
    assert (forwards, backwards) == (7857, 1910)
    assert model.rows[0] - checks == forwards and model.rows[1] >= backwards
