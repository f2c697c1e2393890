"""Free adversarial training: the perturbation by hand, its place in the trainer, in a state and among micro-batches."""

import copy

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.models import load_model, wrap
from hardtack.objectives import FreeConfig, Warmup
from hardtack.threats import Threat
from hardtack.training import Trainer
from hardtack.training.sharpness import SharpnessConfig
from tiny_runs import Linear, images, labels, tiny_recipe, write_data

THREAT = Threat.parse("linf:0.1")


def input_gradient(weight, bias, x, y):
    """Of the mean cross-entropy of a linear model: (softmax − one-hot)·W over the count."""
    p = (x.flatten(1) @ weight.T + bias).softmax(dim=1) - torch.eye(len(bias))[y]
    return (p @ weight / len(x)).view_as(x)


def test_two_replays_by_hand():
    """Plain gradient descent on a linear model; the second batch begins with the first one's perturbation."""
    model, objective_x = Linear(), [images(), images(), images(seed=7)]
    objective = FreeConfig(threat=THREAT, relative_step=0.7).build(model)
    weight, bias, delta = model.head.weight.detach().clone(), model.head.bias.detach().clone(), torch.zeros(1)
    y = labels()
    for x in objective_x:
        x_adv = (x + delta).clamp(0, 1)
        free = ((x + delta) >= 0) & ((x + delta) <= 1)  # clipping stops the gradient
        gradient = input_gradient(weight, bias, x_adv, y) * free
        p = (x_adv.flatten(1) @ weight.T + bias).softmax(dim=1) - torch.eye(4)[y]
        weight, bias = weight - 0.5 * p.T @ x_adv.flatten(1) / 12, bias - 0.5 * p.mean(dim=0)
        delta = (delta + 0.07 * gradient.sign()).clamp(-0.1, 0.1)

        loss = objective(x, y, **objective.prepare(x, y))["loss"]
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad
        objective.finish_step()
        objective.zero_grad()
        assert torch.allclose(objective.delta, delta, atol=1e-6)
        assert torch.allclose(model.head.weight, weight, atol=1e-5)
    assert objective.delta.abs().amax() == pytest.approx(0.1), "two steps of 0.07 reach the surface"


def test_micro_batches_have_places_of_their_own():
    whole, parts = (FreeConfig(threat=THREAT).build(Linear()) for _ in range(2))
    x, y = images(), labels()
    for _ in range(2):
        whole(x, y, **whole.prepare(x, y))["loss"].backward()
        prepared = [parts.prepare(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]  # all before the first backward
        for i, given in zip((0, 4, 8), prepared, strict=True):
            (parts(x[i : i + 4], y[i : i + 4], **given)["loss"] / 3).backward()
        whole.finish_step()
        parts.finish_step()
    assert torch.allclose(whole.delta, parts.delta, atol=1e-7) and whole.delta.abs().amax() == pytest.approx(0.1)


def test_warm_up_holds_the_perturbation_down():
    objective = FreeConfig(threat=THREAT, warmup=Warmup(epochs=4)).build(Linear())
    x, y = images(), labels()
    for epoch, most in ((0.0, 0.0), (1.0, 0.025), (2.0, 0.05), (9.0, 0.1)):
        for _ in range(2):
            objective(x, y, **objective.prepare(x, y, epoch=epoch))["loss"].backward()
            objective.finish_step()
        assert objective.delta.abs().amax().item() == pytest.approx(most), epoch


def test_measuring_the_loss_moves_nothing():
    objective = FreeConfig(threat=THREAT).build(Linear())
    with torch.no_grad():
        objective(images(), labels(), **objective.prepare(images(), labels()))
        objective(images(), labels())
    objective.finish_step()
    assert objective.delta.numel() == 0


def test_in_a_loop_of_ones_own_the_perturbation_moves_with_the_update():
    objective = FreeConfig(threat=THREAT).build(Linear())
    losses = []
    for _ in range(2):
        loss = objective(images(), labels())["loss"]
        loss.backward()
        objective.finish_step()
        losses.append(loss.item())
    assert losses[1] > losses[0]


def test_other_norms_are_refused():
    with pytest.raises(UserError, match="linf"):
        FreeConfig(threat=Threat.parse("l2:1"))


# ---------------------------------------------------------------- in the trainer

FREE = {"name": "free", "threat": "linf:0.1", "replays": 3}
TRAIN = {"epochs": 2, "batch_size": 8, "accumulate": 2, "log_every": 4}


def trainer(folder, data, model=None, **sections):
    recipe = tiny_recipe(folder, data, objective=FREE, train=TRAIN, **sections)
    split = load_data(recipe.data, "train")
    model = model or load_model(recipe.model, num_classes=4, image_size=8, seed=0)
    return Trainer(recipe, model, split, quiet=True)


def test_every_batch_is_trained_on_three_times_in_a_row(tmp_path):
    """32 training images in batches of 8: 4 batches, 12 steps an epoch."""
    job, seen = trainer(tmp_path / "run", write_data(tmp_path / "data.npz")), []
    assert job.steps_per_epoch == 12
    step = job.step
    job.step = lambda batch: seen.append(batch.index.tolist()) or step(batch)
    job.fit()
    assert job.progress.done == len(seen) == 24
    assert all(seen[i] == seen[i + 1] == seen[i + 2] for i in range(0, 24, 3))
    first, second = ({index for batch in seen[i : i + 12] for index in batch} for i in (0, 12))
    assert first == second and len(first) == 32 and seen[0] != seen[12]


class Stop(Exception):
    pass


def test_a_run_stopped_between_replays_goes_on_to_the_bit(tmp_path):
    data = write_data(tmp_path / "data.npz")
    whole = trainer(tmp_path / "whole", data)
    whole.fit()
    first = trainer(tmp_path / "parts", data)
    step = first.step

    def until(batch):
        if first.progress.done == 16:  # the second replay of an epoch's second batch is next
            first._save()
            raise Stop
        return step(batch)

    first.step = until
    with pytest.raises(Stop):
        first.fit()
    again = trainer(tmp_path / "parts", data)
    again.fit()
    assert torch.equal(again.objective.delta, whole.objective.delta) and whole.objective.delta.abs().amax() > 0
    for mine, theirs in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_weights_displaced_by_sam_leave_the_perturbation_a_gradient(tmp_path):
    data = write_data(tmp_path / "data.npz")
    job = trainer(tmp_path / "run", data, wrap(Linear(), num_classes=4), sharpness={"name": "sam"})
    job.step(next(job.batches(0)))
    assert job.objective.delta.shape == (8, 3, 8, 8) and job.objective.delta.abs().amax() == pytest.approx(0.1)


def test_the_perturbation_climbs_by_the_gradient_at_the_displaced_weights(tmp_path):
    data = write_data(tmp_path / "data.npz")
    sharpness = {"name": "sam", "rho": 2.0}  # so far that the gradient at many pixels turns
    job = trainer(tmp_path / "run", data, wrap(Linear(), num_classes=4), sharpness=sharpness)
    batch = next(job.batches(0))
    x, y, _ = job.augmented(*batch, torch.zeros((), dtype=torch.int64))
    objective = copy.deepcopy(job.objective)

    def gradient():
        delta = objective.prepare(x, y, epoch=0.0)["delta"]
        objective(x, y, delta)["loss"].backward()
        return delta.grad

    here = gradient().clone()
    with SharpnessConfig(**sharpness).displaced(list(objective.model.parameters())):
        there = gradient().clone()
    assert (here.sign() != there.sign()).float().mean() > 0.1
    job.step(batch)
    assert torch.equal(job.objective.delta.sign(), there.sign())


def test_the_perturbed_images_stay_in_the_box():
    class Box(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = Linear()

        def forward(self, x):
            assert x.min() >= 0 and x.max() <= 1
            return self.linear(x)

    objective = FreeConfig(threat=Threat.parse("linf:0.5")).build(Box())
    for _ in range(3):
        objective(images(), labels(), **objective.prepare(images(), labels()))["loss"].backward()
        objective.finish_step()
