"""Training with Gaussian noise: the loss is that of noisy images, whose noise is an image's own in every step."""

import pytest
import torch
import torch.nn.functional as F

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.randomness import make_keys
from hardtack.base.registry import objectives
from tiny_runs import Linear, images, labels


def build(model, **settings):
    return objectives.get("gaussian").make(**settings).build(model)


def test_the_loss_is_that_of_images_under_this_noise():
    model, x, y = Linear(), images(400), labels(400)
    objective = build(model, sigma=0.5)
    noisy = objective.prepare(x, y, keys=make_keys(torch.arange(400), 0, 3))["noisy"]
    noise = (noisy - x).flatten()
    assert noise.mean().abs() < 0.01 and abs(noise.std() - 0.5) < 0.005 and noise.abs().max() < 4
    assert abs((noise**4).mean() / 0.5**4 - 3) < 0.1 and noisy.min() < -0.5, "normal, and not cut off at the box"
    assert (noise.view(400, -1)[:, 1:] * noise.view(400, -1)[:, :-1]).mean().abs() < 0.003
    parts = objective(x, y, noisy=noisy)
    assert torch.equal(parts["loss"], F.cross_entropy(model(noisy), y))
    assert parts["accuracy"] == (model(noisy).argmax(1) == y).float().mean()


def test_another_step_has_another_noise_and_the_same_key_the_same():
    x, y = images(6), labels(6)
    objective, keys = build(Linear()), make_keys(torch.arange(6), 0)
    first = objective.prepare(x, y, keys=keys)["noisy"]
    assert torch.equal(objective.prepare(x[2:4], y[2:4], keys=keys[2:4])["noisy"], first[2:4])
    later = objective.prepare(x, y, keys=make_keys(torch.arange(6), 1))["noisy"]
    assert ((later - first).abs().flatten(1).amax(dim=1) > 0.1).all()


def test_a_model_that_is_trained_with_noise_is_certified_further():
    """A pattern as weak as noise decides every label, brightness most of them: noise teaches which one lasts."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    side = (2 * y - 1).float()[:, None, None, None]
    bright = torch.where(torch.rand(400, 1, 1, 1, generator=generator) < 0.1, -side, side)
    pattern = torch.randn(3, 8, 8, generator=generator).sign()
    x = 0.5 + 0.1 * bright + 0.03 * side * pattern + 0.01 * torch.randn(400, 3, 8, 8, generator=generator)
    right, certified = {}, {}
    for name in ("standard", "gaussian"):
        model = Linear(classes=2)
        objective, optimiser = ht.objective(name, model), torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(120):
            optimiser.zero_grad()
            prepared = objective.prepare(x, y, keys=make_keys(torch.arange(400), step))
            objective(x, y, **prepared)["loss"].backward()
            optimiser.step()
        own = {"sigma": 0.25, "n": 200, "n0": 20, "radii": ["0.25"]}
        found = ht.evaluate(model, (x, y), suite="smoothing", smoothing=own, n=60, quiet=True)
        right[name], certified[name] = found.clean_accuracy, found.certified[0][1]
    assert min(right.values()) > 0.8 and certified["gaussian"] > certified["standard"] + 0.1, (right, certified)


def test_bad_settings():
    with pytest.raises(UserError, match="sigma"):
        ht.objective("gaussian", Linear(), sigma=-1.0)
