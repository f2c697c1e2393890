"""A training run's plan: what follows from the recipe exactly, and that trying out leaves no trace."""

import pytest
import torch

from hardtack.attacks.pool.search import Cost
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.commands.plan import plan
from hardtack.commands.recipe_files import is_recipe
from hardtack.commands.recipe_validator import validator_of
from hardtack.training.plan import plan_training
from tiny_runs import tiny_recipe, write_data

PGD = {"name": "pgd", "threat": "linf:0.1", "steps": 3}


def planned(tmp_path, **sections):
    recipe = tiny_recipe(tmp_path / "run", write_data(tmp_path / "data.npz"), **sections)
    return plan_training(recipe, make_validator=validator_of)


def test_steps_images_and_validations_follow_from_the_recipe(tmp_path):
    """32 of 40 images are trained on, 8 validate."""
    found = planned(tmp_path, train={"epochs": 5, "batch_size": 6, "accumulate": 2}, validation={"every": 2})
    assert (found.images, found.steps, found.batch_size, found.validations) == (32, 25, 6, 3)
    assert found.validation_images == 8 and found.classes == 4 and found.shape == (3, 8, 8)
    assert found.total_s == found.steps * found.step_s + 3 * found.one_validation_s > 0
    assert found.memory_mb > 0 and not found.on_gpu
    text = str(found)
    assert "25" in text and "3 × 8" in text and "in 2 parts" in text and "GPU-hours" not in text


@pytest.mark.parametrize(
    "sections, attack, update",
    [
        ({"objective": "standard"}, Cost(0, 0), Cost(1, 1)),
        ({"objective": {"name": "adversarial", "attack": PGD}}, Cost(3, 3), Cost(1, 1)),
        ({"objective": {"name": "adversarial", "attack": PGD}, "sharpness": "sam"}, Cost(3, 3), Cost(2, 2)),
        ({"objective": {"name": "trades", "attack": PGD, "warmup": {"epochs": 1}}}, Cost(4, 3), Cost(2, 2)),
        ({"objective": "standard", "sharpness": {"name": "awp", "from_epoch": 1}}, Cost(0, 0), Cost(2, 2)),
    ],
)
def test_passes_of_an_image_in_a_step(tmp_path, sections, attack, update):
    """TRADES looks at the clean logits once before it climbs. What starts late is counted as in the last epoch."""
    found = planned(tmp_path, **sections)
    assert (found.attack, found.update) == (attack, update)


def test_frozen_parameters_and_averages_are_counted(tmp_path):
    whole = planned(tmp_path, train={"epochs": 1, "batch_size": 8})
    part = planned(tmp_path, train={"epochs": 1, "batch_size": 8, "freeze": ["blocks"], "ema": 0.9})
    assert whole.trained == whole.parameters == part.parameters > part.trained > 0
    floats = [3 * whole.parameters + 2 * one.trained for one in (whole, part)]
    assert whole.disk_mb == pytest.approx(floats[0] * 4 / 2**20)
    assert part.disk_mb == pytest.approx((floats[1] + part.parameters) * 4 / 2**20)


def test_nothing_is_written_and_the_random_state_stays(tmp_path):
    before = torch.get_rng_state()
    planned(tmp_path, train={"epochs": 2, "batch_size": 8, "patience": 1})
    assert not (tmp_path / "run").exists() and torch.equal(torch.get_rng_state(), before)


def test_the_command_knows_recipes_from_runs(tmp_path, capsys, monkeypatch):
    file = tmp_path / "mine.yaml"
    data = write_data(tmp_path / "data.npz")
    file.write_text(
        f"data: {{name: 'npz:{data}'}}\nmodel: {{name: vit_digits, image_size: 8, options: {{patch_size: 4}}}}\n"
    )
    assert main(["plan", str(file), "train.epochs=3", "train.batch_size=8", "runtime.device=cpu"]) == 0
    assert "plan: mine: vit_digits" in capsys.readouterr().out
    assert is_recipe("digits/trades") and is_recipe("recipes/digits/trades.yaml") and not is_recipe("runs/trades")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits" / "trades").mkdir(parents=True)
    assert not is_recipe("digits/trades"), "a run folder of that name goes first"
    with pytest.raises(UserError, match=r"epoch'.*did you mean 'epochs'"):
        plan(str(file), ["train.epoch=3"])


def test_settings_that_train_need_no_recipe(tmp_path):
    data = write_data(tmp_path / "data.npz")
    model = [f"model.{key}={value}" for key, value in (("name", "vit_digits"), ("image_size", 8))]
    words = [f"data=npz:{data}", *model, "train.batch_size=8", "train.epochs=1", "runtime.device=cpu"]
    assert "passes of an image per step" in str(plan(None, [*words, f"output={tmp_path}/run"]))
