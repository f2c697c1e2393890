"""The objective contract over every registered one: (x, y) → {"loss": …, parts}, state, no side effects."""

import copy

import pytest
import torch

from hardtack.base.config import choose, plain
from hardtack.base.registry import objectives
from hardtack.models import load_model
from tiny_runs import CLASSES, Linear, images, labels

EVERY = objectives.names()
SETTINGS = {name: {} for name in EVERY}
for _name in ("adversarial", "alp", "mart", "trades"):  # the default attack has ten steps; two say as much here
    SETTINGS[_name] = {"attack": {"name": "pgd", "threat": "linf:8/255", "steps": 2}}
every_objective = pytest.mark.parametrize("name", EVERY)


def config(name):
    return choose(objectives, {"name": name, **SETTINGS[name]})


def vit(drop_path=0.5, seed=0):
    options = {"patch_size": 4, "depth": 2, "width": 16, "heads": 2, "drop_path": drop_path}
    return load_model("vit_digits", num_classes=CLASSES, image_size=8, seed=seed, **options).train()


def simple(name, seed=0):
    """A model without any chance in it: a linear one, unless the objective is about features of blocks."""
    return vit(drop_path=0.0, seed=seed) if name == "rspc" else Linear(seed=seed)


def soft():
    return torch.full((12, CLASSES), 0.1) + torch.eye(CLASSES)[labels()] * 0.6


def loss_of_keys(objective, x, y):
    """As in the Trainer, which gives every image its key."""
    return objective(x, y, **objective.prepare(x, y, keys=torch.arange(len(x))))["loss"]


@every_objective
@pytest.mark.parametrize("target", [labels, soft])
def test_a_finite_loss_that_reaches_every_parameter(name, target):
    model = vit()
    out = config(name).build(model)(images(), target())
    loss = out["loss"]
    assert loss.shape == () and loss.isfinite() and loss.requires_grad
    for part, value in out.items():
        assert value.shape == () and value.isfinite(), part
        assert part == "loss" or not value.requires_grad, f"{part} would keep the graph alive"
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), parameter_name


@every_objective
def test_defaults_build_and_work(name):
    assert choose(objectives, name).build(simple(name))(images(4), labels(4))["loss"].isfinite()


@every_objective
def test_preparing_first_equals_the_plain_call(name):
    objective = config(name).build(simple(name))
    x, y = images(), labels()
    torch.manual_seed(0)  # without keys both draw their random numbers from torch's generator
    prepared = objective(x, y, **objective.prepare(x, y))["loss"]
    torch.manual_seed(0)
    assert torch.equal(prepared, objective(x, y)["loss"])


@every_objective
def test_the_model_s_parameters_are_the_objective_s(name):
    model = vit()
    objective = config(name).build(model)
    assert {id(p) for p in model.parameters()} <= {id(p) for p in objective.parameters()}


@every_objective
def test_state_travels_to_a_fresh_copy(name):
    """Trained a little, saved and loaded elsewhere: the same loss to the bit."""
    objective, other = config(name).build(simple(name, seed=0)), config(name).build(simple(name, seed=1))
    optimiser = torch.optim.SGD(objective.parameters(), lr=0.1)
    x, y = images(), labels()
    for _ in range(2):
        optimiser.zero_grad()
        objective(x, y)["loss"].backward()
        optimiser.step()
    assert not torch.equal(loss_of_keys(objective, x, y), loss_of_keys(other, x, y))
    other.load_state_dict(copy.deepcopy(objective.state_dict()))
    assert torch.equal(loss_of_keys(objective, x, y), loss_of_keys(other, x, y))


@every_objective
def test_with_keys_the_global_random_state_is_neither_used_nor_moved(name):
    objective = config(name).build(simple(name))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = loss_of_keys(objective, images(), labels())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(loss_of_keys(objective, images(), labels()), first)


@every_objective
def test_inputs_are_not_written_to(name):
    x, y = images(), labels()
    config(name).build(simple(name))(x, y)["loss"].backward()
    assert torch.equal(x, images()) and torch.equal(y, labels()) and not x.requires_grad


@every_objective
def test_configuration_is_written_and_read_back_whole(name):
    written = plain(config(name))
    assert written["name"] == name
    assert choose(objectives, written) == config(name)
