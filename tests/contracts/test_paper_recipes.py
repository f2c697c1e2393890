"""Every recipe and every run of the studies as published is valid, and whatever it asks of training takes a step."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from PIL import Image
from study_units import units

from hardtack import train
from hardtack.base.config import merge, nested, plain, read_yaml
from hardtack.base.registry import models
from hardtack.commands.recipe_files import list_recipes, recipe_folder
from hardtack.models import load_model
from hardtack.models.facts import uninitialised, usual
from hardtack.objectives import OccluderConfig
from hardtack.studies.unit import find_unit
from hardtack.training import read_recipe

RECIPES = list_recipes()
NAMES = [*RECIPES, *units("paper")]


@functools.cache
def recipe(name):
    """A recipe by its name, or the one of a study's run by its label."""
    if name in RECIPES:
        return read_recipe(recipe_folder() / f"{name}.yaml")
    return read_recipe(None, **units("paper")[name].settings)


def row(name):
    """The recipe of `STUDY:ROW/TRAINING` as published, also where an equal run of another study stands for it."""
    (unit,) = find_unit(name, scale="paper")
    return read_recipe(None, **unit.settings)


def network(name):
    """The model as it is built, without weights that are the user's to give."""
    return dataclasses.replace(recipe(name).model, weights=None, adapt=False)


def networks():
    """One recipe for every different model; those without options, at their usual size, are measured as facts."""
    groups = {}
    for name in reversed(NAMES):
        model, size = network(name), recipe(name).data.image_size
        if model.options or model.name not in models.names() or size not in (None, usual(model.name)[0]):
            groups[repr((model, size))] = name
    return list(groups.values())


def ways():
    """One recipe for every way to train; lengths, rates and decays are numbers, which nothing depends on."""
    found = {}
    for name in reversed(NAMES):
        one = recipe(name)
        data = (one.data.repeats, one.data.synthetic is not None, bool(one.data.extra))
        key = (
            one.objective,
            one.augment,
            one.sharpness,
            one.penalty.l1 > 0,
            one.schedule.name,
            one.optimiser.name,
            data,
        )
        found[repr(key)] = name
    return list(found.values())


def test_recipes_are_what_a_person_would_start_from():
    assert {name.split("/")[0] for name in RECIPES} == {"cifar10", "digits"}, "rows of papers' tables are in studies/"
    assert len(NAMES) > len(RECIPES) + 150


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_valid_and_says_how_to_run_it(name):
    text = (recipe_folder() / f"{name}.yaml").read_text()
    head = text.split("\n\n")[0]
    assert f"hardtack train {name}" in head or f"hardtack train recipes/{name}.yaml" in head
    assert "# verified" in head
    assert recipe(name).train.epochs >= 1


@pytest.mark.parametrize("name", networks())
def test_its_model_is_one_that_can_be_built(name):
    with torch.device("meta"), uninitialised():
        model = load_model(network(name), num_classes=10, image_size=recipe(name).data.image_size)
    assert sum(parameter.numel() for parameter in model.parameters()) > 1000


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Three classes of twelve small photographs, and as many synthetic images."""
    folder, generator = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for label in range(3):
        (folder / "photos" / f"class{label}").mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / f"class{label}" / f"{number}.png")
    images = generator.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "synthetic.npz", x=images, y=np.arange(24) % 3)
    return folder


@pytest.mark.parametrize("name", ways())
def test_its_way_of_training_takes_a_step(name, photographs, tmp_path):
    one = recipe(name)
    words = {
        "data.name": f"folder:{photographs / 'photos'}", "data.image_size": 32, "data.validation": 0.25,
        "data.root": None, "data.workers": 0, "train.epochs": 1, "train.batch_size": 8, "train.accumulate": 1,
        "validation.limit": 4, "validation.every": 1, "runtime.precision": "fp32", "runtime.device": "cpu",
        "output": str(tmp_path / "run"), "model": {"name": "vit_tiny_patch4_32", "options": {"depth": 1, "width": 48}},
    }  # fmt: skip
    if one.data.synthetic is not None:
        words["data.synthetic.name"] = f"npz:{photographs / 'synthetic.npz'}"
    stated = read_yaml(recipe_folder() / f"{name}.yaml") if name in RECIPES else units("paper")[name].settings
    settings = read_recipe(None, **merge(stated, nested(words)))
    model = dataclasses.replace(settings.model, weights=None, adapt=False)
    folder = train(dataclasses.replace(settings, model=model), quiet=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses and np.isfinite(losses).all()
    assert (folder / "checkpoints" / "best.safetensors").exists()


def test_a_row_keeps_what_its_base_says_of_the_pixels():
    """A model of another name would lose the statistics of the one it replaces; bases therefore name none."""
    for name, mean in (
        ("xcit/table1:deit_s/standard", (0, 0, 0)), ("xcit/table5:deit_s/adversarial", (0, 0, 0)),
        ("rspc/table3:fan_b_rspc/model", (0.485, 0.456, 0.406)), ("cauchy/table2:covit_l2/model", (0.5, 0.5, 0.5)),
        ("architectures/table1:pvtv2/adversarial", (0.4914, 0.4822, 0.4465)),
    ):  # fmt: skip
        assert row(name).model.mean == mean, name


def test_what_was_trained_with_timm_has_timms_settings_and_our_own_recipes_have_ours():
    for name in NAMES:
        one, paper = recipe(name), name.split("/")[0]
        timm = paper in ("rspc", "xcit")
        if one.schedule.name in ("cosine", "timm_cosine"):
            assert (one.schedule.name == "timm_cosine") == timm, name
        if one.augment.mixup or one.augment.cutmix:
            assert (one.augment.mix_mode == "batch") == timm and (one.augment.mix_batch is not None) == timm, name
            assert not timm or one.train.batch_size % one.augment.mix_batch == 0, name
        if one.augment.erase:
            expected = {"rspc": "normalised", "xcit": "normal"}.get(paper, one.augment.erase_mode)
            assert one.augment.erase_mode == expected != "pixel", name
    images_per_process = {
        "rspc/table1:rvt_s/cifar10": 64, "rspc/table2:rvt_s/model": 128, "rspc/table2:rvt_b/model": 64,
        "xcit/table5:xcit/adversarial": 64, "xcit/table3:mixup/standard": 128,
    }  # fmt: skip
    assert {name: row(name).augment.mix_batch for name in images_per_process} == images_per_process


def test_the_thesis_shows_batch_norm_the_clean_images_too():
    """In the thesis's own trainings; TRADES passes them anyway, and its ResNets are the work of others."""
    for name in ("xcit/table1:xcit_s12/adversarial", "xcit/table3:mixup/adversarial", "xcit/table5:decay/adversarial"):
        assert row(name).objective.clean_pass, name
    others = [name for name in NAMES if not name.startswith("xcit/") and recipe(name).objective.threats()]
    assert others and not any(plain(recipe(name).objective).get("clean_pass") for name in others)


def test_constants_of_the_papers():
    trained = row("architectures/table1:vit/adversarial")
    assert (trained.objective.attack.steps, trained.objective.attack.relative_step) == (15, 0.1)
    assert trained.optimiser.lr == 2.5e-4 and trained.schedule.per_epoch and trained.schedule.warmup_lr == 0
    thesis = row("xcit/table5:decay/adversarial")
    assert thesis.optimiser.weight_decay == 0.5 and thesis.objective.warmup.epochs == 10
    assert thesis.objective.attack.start == "nudged" and thesis.objective.warmup.step == "final"
    assert row("xcit/table2:warmup_30/adversarial").objective.warmup.hold == "epoch"
    cauchy = row("cauchy/table1:covit_t1/model")
    assert cauchy.sharpness.name == "sam" and cauchy.train.epochs == 300


def test_constants_of_rspc():
    learned = [
        "rspc/table1:rvt_s_rspc/cifar10", "rspc/table1:fan_s_rspc/cifar100", "rspc/table2:rvt_ti_rspc/model",
        "rspc/table2:fan_s_rspc/model", "rspc/table3:fan_b_rspc/model",
    ]  # fmt: skip
    for name in learned:
        trained = row(name).objective
        assert (trained.weight, trained.noise, trained.share) == (5e-3, "normalised", 0.1), name
        assert trained.occluder == OccluderConfig(gradient="scaled", lr=1e-4, momentum=0.9, weight_decay=0.05, norm=5)
    assert row("rspc/table3:random/model").objective.noise == "normalised"
    for name in ("digits/rspc", "cifar10/rspc/rvt_rspc", "cifar10/rspc/fan_rspc"):
        ours = recipe(name).objective
        assert (ours.noise, ours.occluder.gradient) == ("pixel", "normalised"), name
