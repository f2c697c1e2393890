"""A run that was stopped and repeated ends like one that never was: to the bit, on the CPU.

Everything that carries state from step to step is on: moving average, augmentation, drop path, a TRADES
attack whose radius grows, accumulation, a schedule, half-filled logging windows.
"""

import dataclasses
import json
import os
import shutil
import signal

import pytest
import torch

import hardtack as ht
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.models import load_model, save_weights
from hardtack.training import Trainer
from hardtack.training.checkpoint import load_state, save_state
from hardtack.training.validation import Validation
from tiny_runs import settings, tiny_recipe, write_data

STEPS = 10  # two epochs of five


class Interrupted(Exception):
    """A crash, as far as the run can tell."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """(data, folder): every run here is written to the same path, which is part of what it writes."""
    base = tmp_path_factory.mktemp("resume")
    return write_data(base / "data.npz"), base / "run"


def recipe(home, *, save_every_step=True):
    data, folder = home
    train = settings(folder, data)["train"] | {"checkpoint_every_s": -1.0 if save_every_step else 3600.0}
    return tiny_recipe(folder, data, train=train)


def outcome(folder):
    """All that a finished run is, but for how fast it was."""
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in metrics:
        line.pop("images_per_s", None)
    files = {name: (folder / "checkpoints" / f"{name}.safetensors").read_bytes() for name in ("best", "last")}
    state = torch.load(folder / "checkpoints" / "state.pt", weights_only=True)
    return metrics, files, state


def same_state(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_state, a, b))
    return a == b


@pytest.fixture(scope="module")
def uninterrupted(home):
    folder = home[1]
    found = {}
    for every in (True, False):
        ht.train(recipe(home, save_every_step=every), quiet=True)
        found[every] = outcome(folder)
        folder.rename(folder.with_name(f"kept-{every}"))
    return found


@pytest.fixture(autouse=True)
def fresh(home):
    yield
    if home[1].exists():
        home[1].rename(home[1].with_name(f"used-{len(list(home[1].parent.iterdir()))}"))


def stop_after(monkeypatch, steps, act):
    original, taken = Trainer.step, []

    def step(self, batch):
        if len(taken) == steps and act is crash:
            act()
        parts = original(self, batch)
        taken.append(1)
        if len(taken) == steps and act is terminate:
            act()
        return parts

    monkeypatch.setattr(Trainer, "step", step)


def crash():
    raise Interrupted


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def assert_same(found, expected):
    assert found[0] == expected[0], "metrics"
    for name in ("last", "best"):
        assert found[1][name] == expected[1][name], f"{name}.safetensors"
    for key in expected[2]:
        assert same_state(found[2][key], expected[2][key]), f"state: {key}"


@pytest.mark.parametrize("steps", [0, 1, 3, 4, 5, 6, 9])
def test_a_crash_after_any_step_changes_nothing(home, uninterrupted, monkeypatch, steps):
    """Saved after every step: mid-window, mid-epoch, at the end of an epoch (5), before the last step."""
    with monkeypatch.context() as patch:
        stop_after(patch, steps, crash)
        with pytest.raises(Interrupted):
            ht.train(recipe(home), quiet=True)
    ht.train(recipe(home), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[True])


@pytest.mark.parametrize("steps", [2, 7])
def test_a_crash_between_saves_repeats_the_lost_steps(home, uninterrupted, monkeypatch, steps):
    """Saved at the ends of epochs only: step 2 starts over from nothing, step 7 from epoch 1."""
    with monkeypatch.context() as patch:
        stop_after(patch, steps, crash)
        with pytest.raises(Interrupted):
            ht.train(recipe(home, save_every_step=False), quiet=True)
    assert (home[1] / "checkpoints" / "state.pt").exists() == (steps == 7)
    ht.train(recipe(home, save_every_step=False), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[False])


@pytest.mark.parametrize("steps", [1, 5, 8, 10])
def test_sigterm_saves_leaves_and_goes_on(home, uninterrupted, monkeypatch, steps):
    """At 5 and 10 the signal comes with the last step of an epoch, whose judgement must not be lost."""
    handler = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        stop_after(patch, steps, terminate)
        with pytest.raises(SystemExit) as left:
            ht.train(recipe(home, save_every_step=False), quiet=True)
    assert left.value.code == 128 + signal.SIGTERM and signal.getsignal(signal.SIGTERM) is handler
    state = torch.load(home[1] / "checkpoints" / "state.pt", weights_only=True)
    assert state["done"] == steps, "nothing of what was computed is lost"
    ht.train(recipe(home, save_every_step=False), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[False])


def test_sigterm_in_the_last_step_of_an_epoch_that_is_not_judged(tmp_path, home, monkeypatch):
    values = {"train": settings(tmp_path, home[0])["train"], "validation": {"every": 2}}
    stop_after(monkeypatch, 5, terminate)
    with pytest.raises(SystemExit):
        ht.train(tiny_recipe(tmp_path / "run", home[0], **values), quiet=True)
    assert torch.load(tmp_path / "run/checkpoints/state.pt", weights_only=True)["done"] == 5


def test_many_crashes_are_no_worse_than_one(home, uninterrupted, monkeypatch):
    for _ in range(STEPS // 3):
        with monkeypatch.context() as patch:
            stop_after(patch, 3, crash)
            with pytest.raises(Interrupted):
                ht.train(recipe(home), quiet=True)
    ht.train(recipe(home), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[True])


def test_a_crash_while_judging_repeats_the_judgement_once(home, uninterrupted, monkeypatch):
    """The validation line was written, the state was not: the line must not appear twice."""
    with monkeypatch.context() as patch:
        export, calls = Validation.export, []

        def failing(self, name, model, epoch, *rest, **named):
            calls.append(name)
            if name == "last" and epoch == 2:
                raise Interrupted
            export(self, name, model, epoch, *rest, **named)

        patch.setattr(Validation, "export", failing)
        with pytest.raises(Interrupted):
            ht.train(recipe(home), quiet=True)
    ht.train(recipe(home), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[True])


def test_a_finished_run_repeated_takes_no_step(home, uninterrupted, monkeypatch):
    ht.train(recipe(home), quiet=True)
    monkeypatch.setattr(Trainer, "step", lambda self, batch: pytest.fail("a finished run was trained further"))
    ht.train(recipe(home), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[True])


def test_a_torn_last_line_of_metrics_is_dropped(home, uninterrupted, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 5, crash)
        with pytest.raises(Interrupted):
            ht.train(recipe(home), quiet=True)
    with (home[1] / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    ht.train(recipe(home), quiet=True)
    assert_same(outcome(home[1]), uninterrupted[True])


@pytest.mark.parametrize("later", ["gone", "other"])
def test_the_weights_that_a_run_started_from_are_not_needed_again(tmp_path, monkeypatch, later):
    """They brought their normalisation along, too, which the continued run must not lose."""
    home, start = (write_data(tmp_path / "data.npz"), tmp_path / "run"), tmp_path / "start.safetensors"
    plain = recipe(home)
    began = dataclasses.replace(plain, model=dataclasses.replace(plain.model, weights=str(start)))

    def write(seed, mean):
        own = dataclasses.replace(plain.model, mean=(mean,) * 3)
        save_weights(start, load_model(own, num_classes=4, image_size=8, seed=seed))

    write(7, 0.3)
    ht.train(began, quiet=True)
    uninterrupted = outcome(home[1])
    shutil.rmtree(home[1])
    with monkeypatch.context() as patch:
        stop_after(patch, 3, crash)
        with pytest.raises(Interrupted):
            ht.train(began, quiet=True)
    start.unlink()
    if later == "other":
        write(8, 0.9)
    ht.train(began, quiet=True)
    assert_same(outcome(home[1]), uninterrupted)


def test_a_state_from_before_a_setting_existed_is_continued_with_what_training_did_then(tmp_path):
    attack = {"name": "pgd", "threat": "linf:0.1", "steps": 2}
    values = plain(tiny_recipe(tmp_path, tmp_path / "x.npz", objective={"name": "adversarial", "attack": attack}))
    older = {key: dict(part) if isinstance(part, dict) else part for key, part in values.items()}
    for section, key in (("augment", "mix_mode"), ("augment", "erase_after_mixing"), ("objective", "clean_pass")):
        del older[section][key]
    save_state(tmp_path, {"recipe": older, "done": 3})
    assert load_state(tmp_path, values, steps_per_epoch=5)["done"] == 3
    changed = values | {"augment": values["augment"] | {"mix_mode": "batch"}}
    with pytest.raises(UserError, match=r"augment\.mix_mode: image → batch"):
        load_state(tmp_path, changed, steps_per_epoch=5)
