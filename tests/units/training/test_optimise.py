"""Who decays and who does not, the schedules against closed forms and PyTorch's own, the moving average."""

import copy
import math

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.training.averaging import MovingAverage
from hardtack.training.optimise import OptimiserConfig, parameter_groups, set_rates
from hardtack.training.schedule import Schedule, ScheduleConfig


def decayed(model, **settings):
    """Names of the parameters that weight decay pulls at."""
    groups = parameter_groups(model, 0.5, **{"decay_all": False, **settings})
    pulled = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in pulled}


@pytest.mark.parametrize("options", [{}, {"class_token": True, "layer_scale": 0.1}])
def test_our_transformer_decays_matrices_only(options):
    model = load_model("vit_digits", depth=1, width=16, heads=2, seed=0, **options)
    names = decayed(model)
    assert {"body.blocks.0.attn.qkv.weight", "body.head.weight", "body.patch_embed.proj.weight"} <= names
    spared = {name for name, _ in model.named_parameters()} - names
    assert "body.pos_embed" in spared, "position tables are no matrices of the network"
    assert all(name.endswith(("bias", "pos_embed", "cls_token", "gamma")) or ".norm" in name for name in spared), spared
    assert not any(name.endswith("bias") or "norm" in name or "cls_token" in name for name in names)


def test_timm_says_itself_what_is_spared():
    model = load_model("timm:vit_tiny_patch16_224", image_size=32, patch_size=8, depth=1, seed=0)
    assert not {"body.pos_embed", "body.cls_token"} & decayed(model)


def test_frozen_parameters_are_left_out_and_decay_all_takes_the_rest():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[0].weight.requires_grad_(False)
    assert decayed(model) == {"1.weight"}
    assert decayed(model, decay_all=True) == {"0.bias", "1.weight", "1.bias"}
    held = [p for group in parameter_groups(model, 0.5, decay_all=False) for p in group["params"]]
    assert len(held) == 3 and all(p.requires_grad for p in held)


@pytest.mark.parametrize(
    "settings, fault",
    [
        ({"lr": 0.0}, "lr"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"momentum": -0.1, "name": "sgd"}, "momentum"),
    ],
)
def test_impossible_optimisers_are_refused(settings, fault):
    from hardtack.base.config import build

    with pytest.raises(UserError, match=fault):
        build(OptimiserConfig, settings)


def test_nesterov_without_momentum_is_plain_descent():
    optimiser = OptimiserConfig(name="sgd", momentum=0.0, nesterov=True).build(nn.Linear(2, 2))
    assert not optimiser.param_groups[0]["nesterov"]


# ---------------------------------------------------------------- schedules


def rates(config, *, lr=0.1, epochs=6, steps=10):
    schedule = Schedule(config, lr, epochs, steps)
    return [schedule.at(step)[0] for step in range(epochs * steps)]


def test_cosine_warms_up_falls_and_cools_down():
    config = ScheduleConfig(name="cosine", warmup_epochs=2, warmup_lr=0.01, final_lr=0.001, cooldown_epochs=1)
    values = rates(config)
    assert values[0] == pytest.approx(0.01)
    assert values[10] == pytest.approx(0.01 + 0.09 / 2), "the warm-up is linear"
    assert values[20] == pytest.approx(0.1) == max(values)
    # between epochs 2 and 5: half a period; its middle is half way down
    assert values[35] == pytest.approx(0.001 + 0.099 / 2)
    assert values[41] == pytest.approx(0.001 + 0.099 * (1 + math.cos(math.pi * 2.1 / 3)) / 2)
    assert values[50:] == pytest.approx([0.001] * 10)


def test_step_multiplies_at_each_milestone():
    values = rates(ScheduleConfig(name="step", milestones=(2, 4.5), gamma=0.1))
    assert values[:20] == [0.1] * 20 and values[20] == pytest.approx(0.01)
    assert values[44] == pytest.approx(0.01) and values[45] == pytest.approx(0.001) == values[-1]


def test_constant_is_constant_after_its_warmup():
    assert rates(ScheduleConfig(name="constant"))[-1] == 0.1 == rates(ScheduleConfig(name="constant"))[0]
    warm = rates(ScheduleConfig(name="constant", warmup_epochs=1, warmup_lr=0))
    assert warm[0] == 0 and warm[5] == pytest.approx(0.05) and warm[10] == 0.1


@pytest.mark.parametrize("total, rise", [(60, 0.3), (7, 0.3), (100, 0.45)])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_one_cycle_equals_pytorchs_momentum_included(total, rise, kind):
    parameter = nn.Parameter(torch.zeros(1))
    make = {
        "sgd": lambda: torch.optim.SGD([parameter], lr=0.1, momentum=0.9),
        "adamw": lambda: torch.optim.AdamW([parameter], lr=0.1),
    }[kind]
    theirs, ours = make(), make()
    peer = torch.optim.lr_scheduler.OneCycleLR(theirs, max_lr=0.1, total_steps=total, pct_start=rise)
    schedule = Schedule(ScheduleConfig(name="onecycle", rise=rise), 0.1, 1, total)
    for step in range(total):
        set_rates(ours, *schedule.at(step))
        a, b = theirs.param_groups[0], ours.param_groups[0]
        assert b["lr"] == pytest.approx(a["lr"], rel=1e-9), step
        if kind == "sgd":
            assert b["momentum"] == pytest.approx(a["momentum"], rel=1e-9), step
        else:
            assert b["betas"] == pytest.approx(a["betas"], rel=1e-9), step
        if step < total - 1:
            theirs.step()
            peer.step()


def test_one_cycle_may_leave_the_momentum_alone():
    schedule = Schedule(ScheduleConfig(name="onecycle", cycle_momentum=None), 0.1, 1, 10)
    assert all(schedule.at(step)[1] is None for step in range(10))


def test_a_scheduler_stepped_after_each_epoch_as_paper_three_has_it():
    """Epoch 1 at rate 0, full rate in epoch 9, T_max 100: the run of 100 epochs ends before the bottom."""
    config = ScheduleConfig(warmup_epochs=8, warmup_lr=0.0, final_lr=5e-6, cosine_epochs=100, per_epoch=True)
    schedule = Schedule(config, 1e-4, 100, 7)
    rates = [schedule.at(step)[0] for step in range(700)]
    assert all(len(set(rates[at : at + 7])) == 1 for at in range(0, 700, 7)), "constant through an epoch"
    by_epoch = rates[::7]
    assert by_epoch[0] == 0 and by_epoch[4] == pytest.approx(0.5e-4) and by_epoch[8] == pytest.approx(1e-4)
    assert by_epoch[58] == pytest.approx(5e-6 + 0.95e-4 / 2), "half way down after 50 of 100 epochs"
    assert by_epoch[99] == pytest.approx(5e-6 + 0.95e-4 * (1 + math.cos(math.pi * 0.91)) / 2)


@pytest.mark.parametrize(
    "settings, lr, epochs",
    [
        ({"warmup_epochs": 5, "warmup_lr": 1e-6, "final_lr": 1e-5, "cooldown_epochs": 10}, 2e-3, 310),  # RVT, ImageNet
        ({"warmup_epochs": 5, "warmup_lr": 5e-6, "final_lr": 5e-5, "cooldown_epochs": 10}, 5e-4, 110),  # XCiT, ImageNet
        ({"final_lr": 1e-5}, 1.25e-4, 20),
        ({"warmup_epochs": 3, "warmup_lr": 0.0, "final_lr": 0.0}, 0.1, 7),
    ],
)
def test_timms_cosine_equals_timms_in_every_epoch(settings, lr, epochs):
    """timm's train.py makes the scheduler, trains an epoch, and steps the scheduler with the number of the next one."""
    from timm.scheduler import create_scheduler_v2

    config, steps = ScheduleConfig(name="timm_cosine", **settings), 3
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    theirs, total = create_scheduler_v2(
        optimiser, sched="cosine", num_epochs=epochs - int(config.cooldown_epochs), min_lr=config.final_lr,
        warmup_epochs=int(config.warmup_epochs), warmup_lr=config.warmup_lr,
        cooldown_epochs=int(config.cooldown_epochs), warmup_prefix=False, step_on_epochs=True,
    )  # fmt: skip
    assert total == epochs
    schedule = Schedule(config, lr, epochs, steps)
    for epoch in range(epochs):
        for step in range(epoch * steps, (epoch + 1) * steps):
            assert schedule.at(step) == (pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-12, abs=1e-18), None)
        theirs.step(epoch + 1)


def test_timms_cosine_has_fallen_when_the_warm_up_ends():
    """Ours starts the cosine there: the two differ, and each keeps its name."""
    settings = {"warmup_epochs": 2, "final_lr": 0.0}
    ours, timms = (rates(ScheduleConfig(name=name, **settings)) for name in ("cosine", "timm_cosine"))
    assert ours[20] == 0.1 and timms[20] == pytest.approx(0.1 * (1 + math.cos(math.pi / 3)) / 2)
    assert timms[20:30] == [timms[20]] * 10 and ours[29] < ours[20]


# ---------------------------------------------------------------- average


def test_average_follows_its_formula_and_copies_buffers():
    torch.manual_seed(0)
    source = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    average = MovingAverage(copy.deepcopy(source), 0.8)
    expected = [p.detach().clone() for p in source.parameters()]
    for step in range(1, 60):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(torch.randn_like(parameter))
            source[1].running_mean.add_(1)
            source[1].num_batches_tracked.add_(1)
        average.after_step(source, step)
        decay = min(0.8, (1 + step) / (10 + step))
        expected = [decay * e + (1 - decay) * p.detach() for e, p in zip(expected, source.parameters(), strict=True)]
        for mine, right in zip(average.model.parameters(), expected, strict=True):
            assert torch.allclose(mine, right, atol=1e-5), step
    assert decay == 0.8, "the loop must have reached the full decay"
    assert torch.equal(average.model[1].running_mean, source[1].running_mean)
    assert average.model[1].num_batches_tracked == 59
    assert not average.model.training and not any(p.requires_grad for p in average.model.parameters())
