"""RSPC's other player: whose gradient it gets, how it steps, and that it learns what to hide."""

import math

import pytest
import torch
from torch import nn

from hardtack.models import wrap
from hardtack.objectives import OccluderConfig, RSPCConfig
from rspc_toys import MEAN, STD, Halved, alignment, build, cross_entropy, shown, small_vit, two_blocks
from tiny_runs import CLASSES, images, labels


def straight_through(objective, x, y, loss):
    """The gradient of `loss(damaged)` in the occluder's weights as if hiding a patch were its score, clipped to ±1."""
    occluder = objective.opponent.occluder
    damaged, _, _ = shown(objective, x, y)
    noise = shown(build(objective.model, share=1.0, choose="random"), x, y)[0]
    mask = occluder(x).detach().requires_grad_()
    pixels = mask.repeat_interleave(2, 1).repeat_interleave(2, 2)[:, None]
    assert torch.equal((pixels * noise + (1 - pixels) * x).detach(), damaged.detach())
    (gradient,) = torch.autograd.grad(loss(pixels * noise + (1 - pixels) * x), mask)
    scores = occluder.scores(x)
    # a lower score hides a patch
    return torch.autograd.grad(scores, list(occluder.parameters()), -gradient.clamp(-1, 1).flatten(1))


def test_the_occluder_gets_minus_the_gradient_of_the_alignment():
    x, y, objective = images(), labels(), build(weight=0.3)
    objective(x, y)["loss"].backward()
    wanted = straight_through(objective, x, y, lambda damaged: 0.3 * alignment(objective.model, x, damaged))
    for parameter, gradient in zip(objective.opponent.occluder.parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, -gradient, rtol=1e-4, atol=1e-8) and gradient.norm() > 1e-4


def test_or_minus_that_of_the_damaged_cross_entropy_and_the_model_does_not_notice():
    x, y = images(), labels()
    objective, usual = build(weight=0.3, occluder_objective="ce"), build(weight=0.3)
    for one in (objective, usual):
        one(x, y)["loss"].backward()
    assert objective(x, y)["loss"].item() == pytest.approx(usual(x, y)["loss"].item(), rel=1e-6)
    for a, b in zip(objective.model.parameters(), usual.model.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-5, atol=1e-7)
    wanted = straight_through(objective, x, y, lambda damaged: cross_entropy(objective.model, damaged, y))
    for parameter, gradient in zip(objective.opponent.occluder.parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, -gradient, rtol=1e-4, atol=1e-8) and gradient.norm() > 1e-4


@pytest.mark.parametrize("on, share_of_ce", [("clean", 1.0), ("both", 0.5)])
def test_or_minus_that_of_both_their_sum(on, share_of_ce):
    """With on=both the model's loss has half of the cross-entropy, and its one gradient serves both players."""
    x, y = images(), labels()
    objective, usual = build(weight=0.3, occluder_objective="both", on=on), build(weight=0.3, on=on)
    assert ("mask_gradient" in objective.prepare(x, y)) == (on == "clean")
    for one in (objective, usual):
        one(x, y)["loss"].backward()
    for a, b in zip(objective.model.parameters(), usual.model.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-5, atol=1e-7), "the model's gradient is the same"

    def loss(damaged):
        apart = alignment(objective.model, x, damaged)
        return share_of_ce * cross_entropy(objective.model, damaged, y) + 0.3 * apart

    wanted = straight_through(objective, x, y, loss)
    for parameter, gradient in zip(objective.opponent.occluder.parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, -gradient, rtol=1e-4, atol=1e-8) and gradient.norm() > 1e-4


def test_on_both_without_alignment_the_cross_entropy_is_climbed_without_another_pass():
    x, y = images(), labels()
    objective = build(weight=0.0, on="both", occluder_objective="ce")
    assert "mask_gradient" not in objective.prepare(x, y)
    objective(x, y)["loss"].backward()
    wanted = straight_through(objective, x, y, lambda damaged: cross_entropy(objective.model, damaged, y) / 2)
    for parameter, gradient in zip(objective.opponent.occluder.parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, -gradient, rtol=1e-4, atol=1e-8) and gradient.norm() > 1e-4


@pytest.mark.parametrize("gradient", ["normalised", "clipped", "scaled"])
def test_its_steps_are_those_of_torch_s_sgd(gradient):
    """Fed minus the straight-through gradient, brought to norm 5 or below, for several steps."""
    rule = OccluderConfig(lr=0.05, momentum=0.8, weight_decay=0.1, gradient=gradient)
    objective = build(weight=3000.0 if gradient == "clipped" else 0.3, occluder=rule)
    theirs = [p.detach().clone().requires_grad_() for p in objective.opponent.occluder.parameters()]
    sgd = torch.optim.SGD(theirs, lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True)
    norms = []
    for step in range(4):
        x, y = images(seed=step), labels(seed=step)
        if gradient == "clipped" and step > 1:
            objective.config = RSPCConfig(patch_size=2, share=0.25, weight=0.3, occluder=rule)
        objective(x, y, **objective.prepare(x, y))["loss"].backward()
        found = [p.grad.clone() for p in objective.opponent.occluder.parameters()]
        norm = torch.cat([g.flatten() for g in found]).norm()
        norms.append(norm.item())
        factor = 5 / norm if gradient == "normalised" else min(5 / norm, torch.tensor(1.0))
        for parameter, own in zip(theirs, found, strict=True):
            parameter.grad = own * factor
        sgd.step()
        objective.finish_step()
        assert objective.opponent.gradient_norm.item() == pytest.approx(norm.item(), rel=1e-5)
        objective.zero_grad()
        for parameter, wanted in zip(objective.opponent.occluder.parameters(), theirs, strict=True):
            assert torch.allclose(parameter, wanted, rtol=1e-4, atol=1e-6)
    if gradient == "clipped":
        assert max(norms) > 5 > min(norms), "both sides of the limit must be seen"
    if gradient == "scaled":
        assert min(norms) > 5, "65536 times as large"


def test_a_loss_scale_leaves_little_but_signs():
    """On a network whose tokens meet: elsewhere patches that are not hidden have no gradient at all."""
    x, y = images(), labels()
    objective = build(small_vit(), patch_size=4, weight=0.3, occluder=OccluderConfig(gradient="scaled"))
    passed = []
    forward = objective.opponent.occluder.scores

    def scores(x):
        out = forward(x)
        out.register_hook(passed.append)
        return out

    objective.opponent.occluder.scores = scores
    objective(x, y)["loss"].backward()
    assert (passed[0].abs() == 1).float().mean() > 0.9


def test_gradients_that_are_not_finite_count_as_nothing():
    objective = build(occluder=OccluderConfig(weight_decay=0.0, momentum=0.0, lr=1.0))
    before = [p.detach().clone() for p in objective.opponent.occluder.parameters()]
    convolution, linear = objective.opponent.occluder.parameters()
    convolution.grad = torch.full_like(convolution, torch.inf)
    linear.grad = torch.zeros_like(linear)
    linear.grad[0, :2] = torch.tensor([3.0, torch.nan])
    objective.finish_step()
    assert torch.equal(convolution, before[0])
    moved = before[1] - linear
    assert moved[0, 0].item() == pytest.approx(5.0, rel=1e-5) and moved.abs().sum().item() == pytest.approx(
        5.0, rel=1e-5
    )
    for parameter in (convolution, linear):
        parameter.grad.fill_(0.0)
    objective.finish_step()
    assert all(parameter.isfinite().all() for parameter in (convolution, linear)), "0/0 is no step"


@pytest.mark.parametrize("gradient", ["clipped", "scaled"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_the_published_order_clips_first_so_one_such_entry_leaves_only_the_decay(gradient, bad):
    objective = build(occluder=OccluderConfig(gradient=gradient, weight_decay=0.1, momentum=0.0, lr=1.0))
    before = [p.detach().clone() for p in objective.opponent.occluder.parameters()]
    convolution, linear = objective.opponent.occluder.parameters()
    convolution.grad, linear.grad = torch.ones_like(convolution), torch.ones_like(linear)
    linear.grad[0, 0] = bad
    objective.finish_step()
    for parameter, old in zip((convolution, linear), before, strict=True):
        assert torch.allclose(parameter, 0.9 * old)
    assert objective.opponent.gradient_norm == 0


class OnePatchMatters(nn.Module):
    """Features that depend on the patch in row 1, column 2 alone."""

    def __init__(self):
        super().__init__()
        self.block, self.head = Halved(0.5), nn.Linear(12, CLASSES)
        self.register_buffer("window", torch.zeros(8, 8))
        self.window[2:4, 4:6] = 1

    def forward(self, x):
        return self.head(self.block(x * self.window)[:, :, 2:4, 4:6].flatten(1))


def test_the_occluder_learns_to_hide_what_matters():
    model = wrap(OnePatchMatters(), image_size=8, num_classes=CLASSES).train()
    objective = build(model, share=0.1, occluder=OccluderConfig(lr=0.02))
    shares = []
    for step in range(60):
        x, y = images(32, seed=step), labels(32, seed=step)
        shares.append(objective.opponent.occluder(x)[:, 1, 2].mean().item())
        objective(x, y, **objective.prepare(x, y, keys=torch.arange(32) + 1000 * step))["loss"].backward()
        objective.finish_step()
        objective.zero_grad()
    assert shares[0] < 0.5 and min(shares[-5:]) > 0.95
    assert objective.optimised is model


def test_the_occluder_starts_from_its_own_seed_and_leaves_the_random_state_alone():
    model = two_blocks()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = build(model).opponent.occluder.mix.weight
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(build().opponent.occluder.mix.weight, first)
    assert not torch.equal(build(occluder=OccluderConfig(seed=1)).opponent.occluder.mix.weight, first)


def test_the_occluder_sees_what_the_model_sees():
    occluder = build().opponent.occluder
    assert occluder.mean.flatten().tolist() == pytest.approx(MEAN) and occluder.std.flatten().tolist() == pytest.approx(
        STD
    )


def test_half_precision_around_it():
    """Masks and alignment are what they are in fp32, up to the features' rounding."""
    x, y, model = images(), labels(), small_vit()
    objective = build(model, patch_size=4)
    exact = objective(x, y)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = objective(x, y)
    assert rounded["loss"].dtype == rounded["alignment"].dtype == torch.float32
    assert rounded["alignment"].item() == pytest.approx(exact["alignment"].item(), rel=0.02)
    rounded["loss"].backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in objective.parameters())
    assert math.isclose(rounded["hidden_share"].item(), exact["hidden_share"].item())
