"""Weights averaged over epochs, their statistics, and a run that ends when it gets no better."""

import json

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.models import load_model, read_metadata, rebuild, wrap
from hardtack.training import Trainer, read_recipe
from tiny_runs import Linear, tiny_recipe, write_data

LAST = "checkpoints/last.safetensors"


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def trainer(tmp_path, data, validate=None, model=None, **sections):
    recipe = tiny_recipe(tmp_path / "run", data, **sections)
    split = load_data(recipe.data, "train")
    model = model or load_model(recipe.model, num_classes=4, image_size=8, seed=recipe.runtime.seed)
    return Trainer(recipe, model, split, validate=validate, quiet=True)


class Interrupted(Exception):
    """A crash, as far as the run can tell."""


def recording(job, epochs):
    """Has the job keep its weights at the end of each epoch."""
    finish = job._finish_epoch
    job._finish_epoch = lambda epoch, *rest: (
        epochs.update({epoch: [p.detach().clone() for p in job.model.parameters()]}) or finish(epoch, *rest)
    )


def test_swa_is_the_equal_mean_of_the_epochs_from_its_first(tmp_path, data):
    epochs = {}
    job = trainer(tmp_path, data, train={"epochs": 4, "batch_size": 16, "swa_from": 2})
    recording(job, epochs)
    job.fit()
    means = [torch.stack(parts).mean(dim=0) for parts in zip(*(epochs[e] for e in (2, 3, 4)), strict=True)]
    exported = rebuild(tmp_path / "run" / LAST)
    for mine, mean in zip(exported.parameters(), means, strict=True):
        assert torch.allclose(mine, mean, atol=1e-6)
    assert not any(torch.allclose(mean, final, atol=1e-4) for mean, final in zip(means, epochs[4], strict=True))
    assert read_metadata(tmp_path / "run" / LAST)["average"] == "swa"


def test_before_its_first_epoch_the_weights_themselves_are_judged(tmp_path, data):
    judged = []
    job = trainer(
        tmp_path, data, lambda model: judged.append(model) or {"score": 0.5},
        train={"epochs": 3, "batch_size": 16, "swa_from": 3},
    )  # fmt: skip
    job.fit()
    assert [model is job.model for model in judged] == [True, True, False]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = Linear(), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.linear(x))


def test_averaged_weights_get_statistics_of_their_own(tmp_path, data):
    """Means over the batches of the next epoch, as the averaged weights see them: computed again by hand."""
    job = trainer(
        tmp_path, data, model=wrap(Normed(), num_classes=4), objective="standard", augment={},
        train={"epochs": 2, "batch_size": 8, "swa_from": 1}, optimiser={"name": "sgd", "lr": 1.0},
    )  # fmt: skip
    job.fit()
    average = job.average.model.body
    seen = [average.linear(batch.x) for batch in job.batches(epoch=2)]
    assert len(seen) == 4
    assert torch.allclose(average.norm.running_mean, torch.stack([s.mean(dim=0) for s in seen]).mean(dim=0), atol=1e-5)
    assert torch.allclose(average.norm.running_var, torch.stack([s.var(dim=0) for s in seen]).mean(dim=0), atol=1e-5)
    assert job.model.body.norm.momentum == 0.1 and job.model.body.norm.num_batches_tracked == 8
    assert not torch.allclose(job.model.body.norm.running_mean, average.norm.running_mean, atol=1e-3)
    assert not torch.equal(job.model.body.linear.head.weight, average.linear.head.weight), "it goes on where it was"


@pytest.mark.parametrize(
    "word, told",
    [
        ("train.swa_from=11", r"train.*swa_from 11.*10 epochs"),
        ("train.patience=0", "patience"),
        ("penalty.l1=-1", "l1"),
        ("optimiser.layer_decay=1.5", "layer_decay"),
    ],
)
def test_impossible_settings_are_refused(word, told):
    with pytest.raises(UserError, match=told):
        read_recipe(None, [word])


def test_two_averages_are_refused():
    with pytest.raises(UserError, match="ema and swa_from"):
        read_recipe(None, ["train.ema=0.9", "train.swa_from=2"])


# ---------------------------------------------------------------- patience

SCORES = [0.2, 0.5, 0.4, 0.5, 0.45, 0.9, 0.9]


def judge_by(scores):
    left = iter(scores)
    return lambda model: {"score": next(left)}


def epochs_judged(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["epoch"] for line in lines if line["kind"] == "validation"]


@pytest.mark.parametrize("patience, ended", [(1, 3), (2, 4), (3, 5), (4, 7)])
def test_a_run_ends_when_patience_does(tmp_path, data, patience, ended):
    """Best at epoch 2; a tie is no improvement; epoch 6 comes in time for a patience of four."""
    train = {"epochs": 7, "batch_size": 16, "patience": patience}
    trainer(tmp_path, data, judge_by(SCORES), train=train).fit()
    assert epochs_judged(tmp_path / "run")[-1] == ended
    assert read_metadata(tmp_path / "run" / "checkpoints/best.safetensors")["epoch"] == (6 if ended == 7 else 2)
    again = trainer(tmp_path, data, judge_by([]), train=train)
    again.step = lambda batch: pytest.fail("a run that has ended was trained further")
    again.fit()


def test_a_resumed_run_keeps_its_patience(tmp_path, data):
    train = {"epochs": 7, "batch_size": 16, "patience": 2, "checkpoint_every_s": -1.0}
    job, taken = trainer(tmp_path, data, judge_by(SCORES), train=train), []
    step = job.step

    def failing(batch):
        if len(taken) == 7:  # in the fourth epoch of two steps
            raise Interrupted
        taken.append(1)
        return step(batch)

    job.step = failing
    with pytest.raises(Interrupted):
        job.fit()
    trainer(tmp_path, data, judge_by(SCORES[3:]), train=train).fit()
    assert epochs_judged(tmp_path / "run") == [1, 2, 3, 4]


def test_patience_counts_epochs_where_only_some_are_judged(tmp_path, data):
    sections = {"train": {"epochs": 9, "batch_size": 16, "patience": 3}, "validation": {"every": 2}}
    trainer(tmp_path, data, judge_by([0.5, 0.4, 0.3, 0.2, 0.1]), **sections).fit()
    assert epochs_judged(tmp_path / "run") == [2, 4, 6]


def test_patience_without_validation_is_refused(tmp_path, data):
    with pytest.raises(UserError, match=r"patience.*data\.validation"):
        trainer(tmp_path, data, train={"epochs": 2, "batch_size": 16, "patience": 1})


# ---------------------------------------------------------------- all of it, interrupted


@pytest.mark.parametrize("crash_at", [3, 5, 7])
def test_a_crash_changes_nothing(tmp_path, data, crash_at):
    sections = {
        "sharpness": {"name": "sam", "rho": 0.1, "from_epoch": 0.5},
        "penalty": {"l1": 1e-4, "of": "mlp"},
        "optimiser": {"name": "adamw", "lr": 0.01, "layer_decay": 0.7, "head_lr": 2},
        "train": {"epochs": 4, "batch_size": 16, "accumulate": 2, "swa_from": 2, "patience": 3, "freeze": ["blocks.0"],
                  "checkpoint_every_s": -1.0},
    }  # fmt: skip
    scores = [0.5, 0.6, 0.7, 0.8]
    trainer(tmp_path / "whole", data, judge_by(scores), **sections).fit()
    job, taken = trainer(tmp_path / "torn", data, judge_by(scores), **sections), []
    step = job.step

    def failing(batch):
        if len(taken) == crash_at:
            raise Interrupted
        taken.append(1)
        return step(batch)

    job.step = failing
    with pytest.raises(Interrupted):
        job.fit()
    trainer(tmp_path / "torn", data, judge_by(scores[crash_at // 2 :]), **sections).fit()
    whole, torn = (tmp_path / name / "run" / LAST for name in ("whole", "torn"))
    for (name, a), b in zip(rebuild(whole).state_dict().items(), rebuild(torn).state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    states = [torch.load(p.with_name("state.pt"), weights_only=True) for p in (whole, torn)]
    for key in ("done", "best", "best_epoch", "stopped"):
        assert states[0][key] == states[1][key]
    assert states[0]["average"]["count"] == states[1]["average"]["count"] == 3
    for a, b in zip(*(state["objective"].values() for state in states), strict=True):
        assert torch.equal(a, b)
