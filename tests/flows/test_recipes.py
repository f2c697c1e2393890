"""Recipes that were run here build as they stand and take a step, model and data cut down to size.

Those of the papers' tables have their test in contracts/test_paper_recipes.py.
"""

import math

import pytest

from hardtack.commands.recipe_files import find_recipe, list_recipes, recipe_folder
from hardtack.data import batches, load_data
from hardtack.models import load_model
from hardtack.training import Trainer, read_recipe, validation_attack
from tiny_runs import write_data

SMALLER = {
    "vit": {"depth": 1, "width": 16, "heads": 2}, "resnet": {"width": 8}, "timm:": {},
    "rvt": {"widths": [16, 32], "depths": [1, 1], "heads": [2, 2], "masked_blocks": 1}, "preact": {"width": 8},
    "fan": {"depth": 1, "width": 16, "heads": 2}, "xcit": {"depth": 1, "width": 16, "heads": 2},
    "cauchy_vit": {"depth": 1}, "covit": {"depth": 1}, "pvtv2": {},
}  # fmt: skip
every_recipe = pytest.mark.parametrize("name", list_recipes())
own_recipe = pytest.mark.parametrize("name", [n for n in list_recipes() if n.startswith(("digits/", "cifar10/"))])


def shrink(recipe_name, tmp_path):
    """The recipe's own words for everything but the images, the size of the network and of the batch."""
    asked = read_recipe(find_recipe(recipe_name)).model.name
    options = next(options for prefix, options in SMALLER.items() if asked.startswith(prefix))
    patch = {"patch_size": 4} if asked.startswith("vit") else {}
    words = [f"model.options.{key}={value}" for key, value in {**options, **patch}.items()]
    data = write_data(tmp_path / "data.npz")
    words += [f"data.name=npz:{data}", "train.batch_size=8", "runtime.device=cpu", "runtime.compile=false"]
    words += ["runtime.precision=fp32", f"output={tmp_path / 'run'}"]
    return read_recipe(find_recipe(recipe_name), words)


@own_recipe
def test_a_recipe_takes_a_step(name, tmp_path):
    recipe = shrink(name, tmp_path)
    data = load_data(recipe.data, "train", workers=0)
    model = load_model(recipe.model, num_classes=data.num_classes, image_size=data.image_shape[-1], seed=0)
    job = Trainer(recipe, model, data, quiet=True)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for batch in list(batches(data, 8, device="cpu", shuffle_seed=0, drop_last=True))[:2]:
        parts = job.step(batch)
        assert math.isfinite(parts["loss"].item())
    assert any((a != b).any() for a, b in zip(model.parameters(), before, strict=True))


@own_recipe
def test_a_recipe_says_what_it_costs_and_brings(name):
    """A header of comments: what it is, the command, hardware and time, the scores to expect."""
    text = (recipe_folder() / f"{name}.yaml").read_text()
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert header, f"{name} has no header"
    assert f"hardtack train {name}" in text or f"hardtack train recipes/{name}.yaml" in text


@every_recipe
def test_a_recipe_that_trains_against_a_threat_is_judged_by_it(name):
    recipe = read_recipe(find_recipe(name))
    trained = getattr(recipe.objective, "attack", None)
    judge = validation_attack(recipe)
    assert (judge is None) == (trained is None)
    assert trained is None or judge.threat.norm == trained.threat.norm


def test_a_recipe_is_found_by_name_by_path_and_with_its_suffix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = recipe_folder() / "digits" / "trades.yaml"
    for word in ("digits/trades", "digits/trades.yaml", "recipes/digits/trades.yaml", str(path)):
        assert find_recipe(word).samefile(path)
