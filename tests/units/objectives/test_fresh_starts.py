"""Outside of the Trainer an objective attacks from another random point in every call, as torch's seed says."""

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.config import choose
from hardtack.base.registry import objectives

MADE = {
    "adversarial": {},
    "trades": {},
    "mart": {},
    "alp": {},
    "adversarial, three norms": {
        "attacks": [{"name": "pgd", "threat": text, "steps": 1} for text in ("linf:0.1", "l2:1", "l1:5")],
        "combine": "random",
    },
}


class Quadratic(nn.Module):
    """Its gradient depends on where it is taken, so that a start shows in the end."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 3 * 8 * 8 * 4).reshape(4, -1))

    def forward(self, x):
        return (x.flatten(1) - 0.5) ** 2 @ self.weight.T


def made(name):
    one = {"attack": {"name": "pgd", "threat": "linf:0.1", "steps": 1, "relative_step": 0.1}}
    settings = {} if "," in name else one
    return choose(objectives, {"name": name.partition(",")[0], **settings, **MADE[name]}).build(Quadratic())


def batch():
    return torch.full((6, 3, 8, 8), 0.5), torch.arange(6) % 4


@pytest.mark.parametrize("name", MADE)
def test_every_call_starts_elsewhere_and_torchs_seed_repeats_it(name):
    objective, (x, y) = made(name), batch()
    torch.manual_seed(5)
    first, second = objective.prepare(x, y)["x_adv"], objective.prepare(x, y)["x_adv"]
    torch.manual_seed(5)
    again = objective.prepare(x, y)["x_adv"]
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


@pytest.mark.parametrize("name", MADE)
def test_with_keys_nothing_is_drawn_and_a_call_repeats_itself(name):
    objective, (x, y), keys = made(name), batch(), torch.arange(6) + 100
    random = torch.get_rng_state()
    first = objective.prepare(x, y, keys=keys)["x_adv"]
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(first, objective.prepare(x, y, keys=keys)["x_adv"])
    half = objective.prepare(x[3:], y[3:], keys=keys[3:])["x_adv"]
    torch.testing.assert_close(first[3:], half)  # of each image alone, whatever stands beside it


def test_random_patches_of_rspc_differ_from_call_to_call():
    model = ht.load_model("vit_digits", num_classes=10, seed=0)
    objective = choose(objectives, {"name": "rspc", "choose": "random", "weight": 0.0, "on": "both"}).build(model)
    x, y = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    keys = [objective.prepare(x, y)["keys"] for _ in range(2)]
    assert not torch.equal(*keys)


def test_gaussian_noise_differs_from_call_to_call():
    objective, (x, y) = choose(objectives, "gaussian").build(Quadratic()), batch()
    torch.manual_seed(5)
    first, second = objective.prepare(x, y)["noisy"], objective.prepare(x, y)["noisy"]
    assert ((first - second).flatten(1).abs().amax(dim=1) > 0.1).all()
    torch.manual_seed(5)
    assert torch.equal(objective.prepare(x, y)["noisy"], first) and objective(x, y)["loss"].isfinite()
