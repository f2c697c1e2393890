"""Functions of the caller's that a training calls, and runs that go on after their end."""

import json

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.models import read_metadata
from tiny_runs import tiny_recipe, write_data


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def recipe_of(folder, data, epochs=2, **train):
    """Five steps an epoch."""
    return tiny_recipe(folder, data, train={"epochs": epochs, "batch_size": 6, "ema": 0.9, "log_every": 2, **train})


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def state(folder):
    return torch.load(folder / "checkpoints" / "state.pt", weights_only=True)


def test_callbacks_see_every_step_epoch_and_validation(tmp_path, data):
    steps, epochs, scores = [], [], []
    recipe = recipe_of(tmp_path / "run", data)
    folder = ht.train(recipe, quiet=True, on_step=steps.append, on_epoch=epochs.append, on_validation=scores.append)
    assert [event.step for event in steps] == list(range(1, 11)) and {event.total_steps for event in steps} == {10}
    assert [event.epoch for event in epochs] == [1, 2] == [event.epoch for event in scores]
    assert all(isinstance(event.metrics["loss"], torch.Tensor) and event.model.training for event in steps)
    logged = [line for line in lines(folder) if line["kind"] == "train"]
    assert epochs[-1].metrics["loss"] == logged[-1]["loss"]
    assert [event.metrics["score"] for event in scores] == [
        line["score"] for line in lines(folder) if line["kind"] == "validation"
    ]
    assert steps[0].folder == folder


def test_callbacks_change_nothing(tmp_path, data):
    plain = ht.train(recipe_of(tmp_path / "plain", data), quiet=True)
    called = ht.train(recipe_of(tmp_path / "called", data), quiet=True, on_step=lambda event: None)
    for name, value in state(plain)["objective"].items():
        assert torch.equal(value, state(called)["objective"][name])


@pytest.mark.parametrize("moment", ["on_step", "on_epoch", "on_validation"])
def test_a_callback_ends_the_run_after_its_epoch(tmp_path, data, moment, capsys):
    recipe = recipe_of(tmp_path / "run", data, 5)
    folder = ht.train(recipe, **{moment: lambda event: event.stop() if event.epoch > 1 else None})
    assert "as a callback asked" in capsys.readouterr().err
    assert state(folder)["done"] == 10 and state(folder)["stopped"]
    assert read_metadata(folder / "checkpoints" / "last.safetensors")["epoch"] == 2
    assert [line["epoch"] for line in lines(folder) if line["kind"] == "validation"] == [1, 2]
    before = (folder / "checkpoints" / "last.safetensors").read_bytes()
    ht.train(recipe, quiet=True)  # it stays ended
    assert (folder / "checkpoints" / "last.safetensors").read_bytes() == before


def test_an_error_in_a_callback_is_the_callers_and_the_run_can_go_on(tmp_path, data):
    def fail(event):
        if event.step == 7:
            raise ValueError("mine")

    recipe = recipe_of(tmp_path / "run", data)
    with pytest.raises(ValueError, match="mine"):
        ht.train(recipe, quiet=True, on_step=fail)
    folder = ht.train(recipe, quiet=True)
    whole = ht.train(recipe_of(tmp_path / "whole", data), quiet=True)
    for name, value in state(whole)["objective"].items():
        assert torch.equal(value, state(folder)["objective"][name])


# ---------------------------------------------------------------- more epochs


def test_a_finished_run_is_extended(tmp_path, data, capsys):
    folder = ht.train(recipe_of(tmp_path / "run", data, 1))
    first = state(folder)["objective"]
    steps = []
    more = recipe_of(tmp_path / "run", data, 3)
    assert ht.train(more, on_step=steps.append) == folder
    assert "extends the finished run of 1 epochs to 3" in capsys.readouterr().err
    assert [event.step for event in steps] == list(range(6, 16))
    assert state(folder)["extended_from"] == [1] and state(folder)["done"] == 15
    assert any(not torch.equal(value, first[name]) for name, value in state(folder)["objective"].items())
    assert [line["epochs"] for line in lines(folder) if line["kind"] == "extended"] == [3]
    assert [line["epoch"] for line in lines(folder) if line["kind"] == "validation"] == [1, 2, 3]
    assert read_metadata(folder / "checkpoints" / "last.safetensors")["extended_from"] == [1]
    assert "epochs: 3" in (folder / "config.yaml").read_text()


def test_an_extended_run_resumes_to_the_same_weights(tmp_path, data):
    def fail(event):
        if event.step == 12:
            raise KeyboardInterrupt

    def extended(name, **callbacks):
        ht.train(recipe_of(tmp_path / name, data, 1), quiet=True)
        return ht.train(recipe_of(tmp_path / name, data, 3, checkpoint_every_s=0.0), quiet=True, **callbacks)

    with pytest.raises(KeyboardInterrupt):
        extended("killed", on_step=fail)
    killed = ht.train(recipe_of(tmp_path / "killed", data, 3), quiet=True)
    whole = extended("whole")
    for name, value in state(whole)["objective"].items():
        assert torch.equal(value, state(killed)["objective"][name])
    assert state(killed)["extended_from"] == [1]
    assert len([line for line in lines(killed) if line["kind"] == "extended"]) == 1


def test_a_run_that_is_not_finished_is_not_extended(tmp_path, data):
    def fail(event):
        if event.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ht.train(recipe_of(tmp_path / "run", data, checkpoint_every_s=0.0), quiet=True, on_step=fail)
    with pytest.raises(UserError, match=r"a run of 2 epochs that is not finished; finish it with train\.epochs=2"):
        ht.train(recipe_of(tmp_path / "run", data, 3), quiet=True)


def test_fewer_epochs_are_refused(tmp_path, data):
    ht.train(recipe_of(tmp_path / "run", data), quiet=True)
    with pytest.raises(UserError, match=r"another recipe \(train\.epochs: 2 → 1\)"):
        ht.train(recipe_of(tmp_path / "run", data, 1), quiet=True)
