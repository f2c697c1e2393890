"""SAM and AWP against steps written out by hand, whatever else the step does."""

import pytest
import torch
from torch import nn

from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.data import batches, load_data
from hardtack.models import load_model, wrap
from hardtack.training import Trainer, sharpness
from hardtack.training.sharpness import SharpnessConfig
from tiny_runs import MODEL, Linear, tiny_recipe, write_data

PLAIN = {
    "augment": {},
    "objective": "standard",
    "schedule": {"name": "constant"},
    "optimiser": {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0},
}
SAM = {"name": "sam", "rho": 0.5}
ADVERSARIAL = {"name": "adversarial", "attack": {"name": "pgd", "threat": "linf:0.1", "steps": 2}}


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def trainer(tmp_path, data, network=None, **sections):
    recipe = tiny_recipe(tmp_path / "run", data, **{**PLAIN, "model": MODEL, **sections})
    split = load_data(recipe.data, "train")
    model = network or load_model(recipe.model, num_classes=split.num_classes, image_size=8, seed=0)
    return Trainer(recipe, model, split, quiet=True)


def some_batches(job, count):
    stream = batches(job.data, job.config.batch_size, device="cpu", shuffle_seed=3, drop_last=True)
    return [next(stream) for _ in range(count)]


def gradients(values, batch):
    """Of the mean cross-entropy of x·W + b, by its closed form."""
    x = batch.x.flatten(1)
    p = (x @ values[0].T + values[1]).softmax(dim=1) - torch.eye(4)[batch.y]
    return [p.T @ x / len(x), p.mean(dim=0)]


def length(tensors):
    return torch.cat([t.flatten() for t in tensors]).norm()


def sam(values, g):
    return [0.5 * one / length(g) for one in g]


def adaptive(values, g):
    weighted = length([v.abs() * one for v, one in zip(values, g, strict=True)])
    return [0.5 * v**2 * one / weighted for v, one in zip(values, g, strict=True)]


def awp(values, g):
    return [0.5 * values[0].norm() * g[0] / g[0].norm(), torch.zeros_like(g[1])]


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(
    "section, move", [(SAM, sam), ({**SAM, "adaptive": True}, adaptive), ({"name": "awp", "rho": 0.5}, awp)]
)
def test_a_step_is_the_gradient_at_the_displaced_weights(tmp_path, data, section, move, accumulate):
    train = {"batch_size": 8, "accumulate": accumulate}
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), sharpness=section, train=train)
    head = job.model.body.head
    values = [head.weight.detach().clone(), head.bias.detach().clone()]
    for batch in some_batches(job, 3):
        e = move(values, gradients(values, batch))
        there = gradients([v + one for v, one in zip(values, e, strict=True)], batch)
        plain = gradients(values, batch)
        values = [v - 0.1 * g for v, g in zip(values, there, strict=True)]
        parts = job.step(batch)
        assert parts["sharpness"] > 1e-3, "the loss is higher where the weights are displaced to"
        assert parts["gradient_norm"] == pytest.approx(length(there).item(), rel=1e-4)
        assert (length(there) - length(plain)).abs() > 1e-3, "what is compared differs from a plain step"
    assert torch.allclose(head.weight, values[0], atol=1e-5) and torch.allclose(head.bias, values[1], atol=1e-5)


def test_on_a_quadratic_by_hand():
    """f(w) = ½ Σ a w²: the gradient at w + rho·g/‖g‖ is a·(w + rho·g/‖g‖)."""
    w, a = nn.Parameter(torch.tensor([3.0, 0.5])), torch.tensor([1.0, 8.0])
    (a * w**2 / 2).sum().backward()
    assert torch.equal(w.grad, torch.tensor([3.0, 4.0]))
    with SharpnessConfig(name="sam", rho=1.0).displaced([w]):
        assert torch.allclose(w, torch.tensor([3.6, 1.3]))
        w.grad = None
        (a * w**2 / 2).sum().backward()
    assert torch.equal(w.detach(), torch.tensor([3.0, 0.5]))
    assert torch.allclose(w.grad, torch.tensor([3.6, 10.4]))


def test_awp_moves_each_layer_by_a_share_of_its_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(torch.randn(4, 5)).square().mean().backward()
    with SharpnessConfig(name="awp", rho=0.02).displaced(list(model.parameters())):
        for name, p in model.named_parameters():
            moved = (p.detach() - before[name]).norm()
            assert moved == pytest.approx(0.02 * before[name].norm().item() if p.ndim > 1 else 0.0, rel=1e-4), name
            along = torch.cosine_similarity((p.detach() - before[name]).flatten(), p.grad.flatten(), dim=0)
            assert p.ndim == 1 or along > 0.999, name
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_weights_return_to_the_bit_even_after_an_error():
    w = nn.Parameter(torch.full((3,), 0.1))
    w.grad = torch.tensor([1e-9, 1.0, 1e9])
    with pytest.raises(RuntimeError), SharpnessConfig(name="sam", rho=1e6).displaced([w]):
        raise RuntimeError
    assert torch.equal(w, torch.full((3,), 0.1))


def test_the_usual_radius_is_that_of_the_papers():
    def moved(**settings):
        w = nn.Parameter(torch.ones(2, 2))
        w.grad = torch.ones(2, 2)
        with SharpnessConfig(**settings).displaced([w]):
            return (w - 1).norm().item()

    assert moved(name="sam") == pytest.approx(0.05, rel=1e-4)
    assert moved(name="awp") == pytest.approx(0.005 * 2, rel=1e-4)


def test_both_passes_see_the_same_attacked_images(tmp_path, data):
    section = {"objective": ADVERSARIAL, "train": {"batch_size": 8, "accumulate": 2}, "sharpness": SAM}
    job = trainer(tmp_path, data, **section)
    forward, seen, prepared = job.objective.forward, [], []
    job.objective.forward = lambda x, y, x_adv: seen.append(x_adv.clone()) or forward(x, y, x_adv)
    prepare = job.objective.prepare
    job.objective.prepare = lambda *a, **k: prepared.append(1) or prepare(*a, **k)
    job.step(some_batches(job, 1)[0])
    assert len(seen) == 4 and len(prepared) == 2, "the attack is made once for both"
    assert torch.equal(seen[0], seen[2]) and torch.equal(seen[1], seen[3]) and not torch.equal(seen[0], seen[1])


def test_both_passes_drop_the_same_branches(tmp_path, data):
    """With a displacement of nothing the second pass must repeat the first, drop path included."""
    model = {**MODEL, "options": {**MODEL["options"], "drop_path": 0.5}}
    common = {"model": model, "train": {"batch_size": 8, "accumulate": 2}}
    jobs = [trainer(tmp_path, data, sharpness=section, **common) for section in ({"name": "sam", "rho": 0.0}, {})]
    batch = some_batches(jobs[0], 1)[0]
    parts = [job.step(batch) for job in jobs]
    assert parts[0]["sharpness"] == 0 and parts[0]["loss"] == parts[1]["loss"]
    for a, b in zip(jobs[0].model.parameters(), jobs[1].model.parameters(), strict=True):
        assert torch.equal(a, b)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm2d(3), Linear()

    def forward(self, x):
        return self.linear(self.norm(x))


def test_batch_norm_counts_a_batch_once(tmp_path, data):
    statistics = []
    for section in ({}, SAM):
        job = trainer(tmp_path, data, wrap(Normed(), num_classes=4), sharpness=section, train={"batch_size": 8})
        job.step(some_batches(job, 1)[0])
        statistics.append(job.model.body.norm)
    assert statistics[1].num_batches_tracked == 1
    assert torch.equal(statistics[0].running_mean, statistics[1].running_mean)
    assert torch.equal(statistics[0].running_var, statistics[1].running_var)


def test_it_starts_with_its_epoch(tmp_path, data):
    job = trainer(tmp_path, data, sharpness={**SAM, "from_epoch": 1}, train={"batch_size": 16, "epochs": 3})
    assert job.steps_per_epoch == 2
    reported = ["sharpness" in job.step(batch) for _ in range(2) for batch in some_batches(job, 2)]
    assert reported == [False, False, True, True]


def test_clipping_bounds_the_second_gradient(tmp_path, data):
    train = {"batch_size": 8, "clip": 0.05}
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), sharpness=SAM, train=train)
    before = [p.detach().clone() for p in job.model.parameters()]
    job.step(some_batches(job, 1)[0])
    moved = length([p.detach() - b for p, b in zip(job.model.parameters(), before, strict=True)])
    assert moved == pytest.approx(0.1 * 0.05, rel=1e-3)


def test_a_gradient_of_nan_leaves_the_weights_as_they_were(tmp_path, data):
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), sharpness=SAM, train={"batch_size": 8})
    before = [p.detach().clone() for p in job.model.parameters()]
    job.model.body.head.weight.register_hook(lambda g: g * torch.nan)
    with pytest.raises(UserError, match="not finite"):
        job.step(some_batches(job, 1)[0])
    assert all(torch.equal(p, b) for p, b in zip(job.model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"name": "awp", "adaptive": True}, "adaptive is a setting of sam"),
        ({"name": "sma"}, "sharpness"),
        ({"name": "sam", "rho": -1}, "rho"),
    ],
)
def test_impossible_settings_are_refused(settings, told):
    with pytest.raises(UserError, match=told):
        build(SharpnessConfig, settings, path="sharpness")


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_length_of_all_gradients_is_measured_once(adaptive, monkeypatch):
    """It is a pass over all of them: once for each of hundreds of weights is what a step would wait for."""
    seen = []
    length_of = sharpness._length
    monkeypatch.setattr(sharpness, "_length", lambda tensors: seen.append(len(tensors)) or length_of(tensors))
    weights = [nn.Parameter(torch.ones(3)) for _ in range(20)]
    for weight in weights:
        weight.grad = torch.ones(3)
    with SharpnessConfig(name="sam", adaptive=adaptive).displaced(weights):
        assert seen == [20]
