"""The cost of a training step: passes counted, multiply-adds by hand, and the speed that a run logged."""

import json

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.cost.chart import cost_charts
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.base.runtime import Runtime
from hardtack.models import load_model, wrap
from hardtack.models.facts import measure
from hardtack.models.passes import forward_multiply_adds
from hardtack.results import read_runs
from tiny_runs import CLASSES, MODEL, tiny_recipe, write_data

CPU = Runtime(device="cpu")


class TwoLayers(nn.Module):
    """192·5 + 5·4 multiply-adds."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(192, 5, bias=False), nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.second(self.first(x.flatten(1)).relu())


def linear():
    return wrap(TwoLayers(), image_size=8, num_classes=CLASSES)


def vit():
    return load_model("vit_digits", num_classes=CLASSES, image_size=8, seed=0, **MODEL["options"])


def look(model, objective=None, **settings):
    chosen = {} if objective is None else {"objective": objective}
    return ht.analyze(model, None, "cost", runtime=CPU, quiet=True, **{"repeats": 0, **chosen, **settings})


def value(found, metric, column=""):
    return found.of(metric, column).value


@pytest.mark.parametrize(
    "objective, attack, update",
    [
        (None, (0, 0), (1, 1)),
        ({"name": "adversarial", "attack": {"name": "pgd", "threat": "linf:1/255", "steps": 3}}, (3, 3), (1, 1)),
        ({"name": "trades", "attack": {"name": "pgd", "threat": "linf:1/255", "steps": 1}}, (2, 1), (2, 2)),
        ({"name": "trades", "attack": {"name": "pgd", "threat": "linf:1/255", "steps": 2}}, (3, 2), (2, 2)),
        ({"name": "trades", "attack": {"name": "pgd", "threat": "linf:1/255", "steps": 3}}, (4, 3), (2, 2)),
    ],
)
def test_passes_and_multiply_adds_by_hand(objective, attack, update):
    found = look(linear(), objective)
    forward = 192 * 5 + 5 * CLASSES
    for at, metric in enumerate(("forward_passes", "backward_passes")):
        assert (value(found, metric, "attack"), value(found, metric, "update")) == (attack[at], update[at])
    step = forward * (sum(attack) + update[0] + 2 * update[1])
    assert value(found, "multiply_adds", "model") == forward
    assert value(found, "multiply_adds", "attack") == forward * sum(attack)
    assert value(found, "multiply_adds", "step") == step
    assert value(found, "relative_step_cost") == pytest.approx(step / (3 * forward))
    assert found.of("attack_step_over_occluder") is None and found.of("seconds", "step") is None


def test_rspc_doubles_the_step_and_its_occluder_is_small():
    """2 of 4 patches by 4×4: 3·8·8 products of the convolution and 4·4 of the linear layer."""
    model = vit()
    found = look(model, {"name": "rspc", "share": 0.5})
    occluder, forward = 192 + 16, value(found, "multiply_adds", "model")
    assert value(found, "multiply_adds", "occluder") == occluder
    assert (value(found, "forward_passes", "update"), value(found, "backward_passes", "update")) == (2, 2)
    assert value(found, "forward_passes", "attack") == 0
    assert value(found, "relative_step_cost") == pytest.approx(2 + occluder / forward)
    assert value(found, "attack_step_over_occluder") == pytest.approx(2 * forward / occluder)
    own = look(model, {"name": "rspc", "share": 0.5, "occluder_objective": "ce"})
    assert (value(own, "forward_passes", "attack"), value(own, "backward_passes", "attack")) == (1, 1)


@pytest.mark.parametrize("name", ["vit_tiny_patch4_32", "rvt_tiny_32", "fan_tiny_hybrid_32"])
def test_multiply_adds_are_those_of_the_table_of_models(name):
    model = load_model(name, num_classes=10, image_size=32).eval()
    counted = forward_multiply_adds(model, torch.rand(2, 3, 32, 32))
    assert counted / 1e9 == pytest.approx(measure(name, image_size=32, num_classes=10).gflops, rel=1e-3)


@pytest.mark.parametrize("name", objectives.names())
def test_every_objective_has_a_cost_and_the_model_stays_as_it_was(name):
    model = vit()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert value(look(model, name), "relative_step_cost") >= 1
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and all(p.grad is None for p in model.parameters())


def test_times_are_measured_when_asked_for():
    found = look(vit(), {"name": "rspc"}, repeats=1)
    assert all(value(found, "seconds", name) > 0 for name in ("standard", "step", "attack step", "occluder"))
    assert value(found, "relative_step_time") > 0 and value(found, "attack_step_time_over_occluder") > 0


def test_a_run_has_its_own_objective_and_the_speed_it_logged(tmp_path):
    data = write_data(tmp_path / "data.npz")
    objective = {"name": "trades", "attack": {"name": "pgd", "threat": "linf:1/255", "steps": 2}}
    train = {"epochs": 1, "batch_size": 16}
    folder = ht.train(tiny_recipe(tmp_path / "run", data, objective=objective, train=train), quiet=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    speeds = sorted(line["images_per_s"] for line in lines if line["kind"] == "train")
    found = look(ht.load_run(folder), folder=folder)
    assert found.facts["objective"] == "trades" and value(found, "forward_passes", "attack") == 3
    middle = speeds[len(speeds) // 2] if len(speeds) % 2 else sum(speeds[len(speeds) // 2 - 1 :][:2]) / 2
    assert value(found, "training_images_per_s") == pytest.approx(middle)
    assert value(found, "training_step_s") == pytest.approx(16 / middle)
    other = look(ht.load_run(folder), "standard", folder=folder)
    assert value(other, "relative_step_cost") == 1 and other.of("training_step_s") is None
    first, second = cost_charts(read_runs(tmp_path / "run"))
    ratios = {chart["series"][0]["values"][0][0] for chart in (first, second)}
    assert ratios == {round(value(found, "relative_step_cost"), 4), 1.0}
    assert any(row[0] == "multiply adds step" for row in first["numbers"][0]["rows"])


def test_two_gradients_for_every_update_with_sam(tmp_path):
    data = write_data(tmp_path / "data.npz")
    sections = {"objective": "standard", "sharpness": {"name": "sam"}, "train": {"epochs": 1, "batch_size": 16}}
    folder = ht.train(tiny_recipe(tmp_path / "run", data, **sections), quiet=True)
    found = look(ht.load_run(folder), folder=folder)
    assert value(found, "relative_step_cost") == 2 and value(found, "forward_passes", "update") == 2


def test_a_model_of_any_size_needs_one():
    with pytest.raises(UserError, match=r"cost\.image_size=224"):
        look(wrap(TwoLayers(), num_classes=CLASSES))
    assert value(look(wrap(TwoLayers(), num_classes=CLASSES), image_size=8), "relative_step_cost") == 1
