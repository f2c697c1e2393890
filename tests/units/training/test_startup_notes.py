"""What a run says before its first step: where it starts, and which settings have no effect or an unexpected one."""

import re
from pathlib import Path

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.models import load_model
from hardtack.training import Trainer, read_recipe
from hardtack.training.startup_notes import recipe_notes, startup_notes
from tiny_runs import settings, tiny_recipe, write_data

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def short(folder, data, **sections):
    """One epoch of two steps without an attack."""
    plain = {"objective": "standard", "train": {"epochs": 1, "batch_size": 16}, "schedule": {"name": "constant"}}
    return tiny_recipe(folder, data, **{**plain, **sections})


def said(recipe, capsys):
    """The lines of the console, whatever the width of the terminal."""
    ht.train(recipe)
    return " ".join(capsys.readouterr().err.split())


def test_too_few_classes_are_refused_before_the_first_step(tmp_path, data):
    model = {**settings(tmp_path, data)["model"], "num_classes": 3}
    with pytest.raises(UserError, match=r"the model has 3 classes and .* has 4; leave model.num_classes out"):
        ht.train(short(tmp_path / "run", data, model=model), quiet=True)


def test_more_classes_than_the_data_has_are_said(tmp_path, data, capsys):
    model = {**settings(tmp_path, data)["model"], "num_classes": 6}
    assert "the model has 6 classes, but the data has 4" in said(short(tmp_path / "run", data, model=model), capsys)


def test_a_run_says_whose_weights_it_starts_from(tmp_path, data, capsys):
    first = ht.train(short(tmp_path / "first", data), quiet=True)
    model = {**settings(tmp_path, data)["model"], "weights": str(first)}
    assert f"tiny: starts from the weights in {first}" in said(short(tmp_path / "run", data, model=model), capsys)


def test_an_ordinary_run_says_nothing_of_the_kind(tmp_path, data, capsys):
    text = said(short(tmp_path / "run", data), capsys)
    assert text.startswith("tiny epoch 1/1"), text


def notes(job):
    """The startup notes of a trainer, as `fit` prints them."""
    total = job.config.epochs * job.steps_per_epoch
    named = {"model": job.model, "objective": job.objective, "data": job.data}
    return list(startup_notes(job.recipe, job.progress, total=total, **named))


def fit_blind(folder, data, see, objective):
    """Trains a model that sees `see(x)` instead of the images."""
    recipe = short(folder, data, objective=objective)
    split = load_data(recipe.data, "train")
    model = load_model(recipe.model, num_classes=split.num_classes, seed=0)
    model.register_forward_pre_hook(lambda module, args: (see(args[0]),))
    Trainer(recipe, model, split).fit()


@pytest.mark.parametrize("objective", ["adversarial", "trades", "mart", "alp", "free"])
def test_an_attack_that_sees_no_gradient_is_refused(tmp_path, data, objective):
    with pytest.raises(UserError, match="passes no gradient to its input"):
        fit_blind(tmp_path / "run", data, torch.Tensor.detach, objective)


class Forgetful(torch.autograd.Function):
    """Hands the images on, and says backwards that they did not matter."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return None


def test_a_path_that_leads_elsewhere_is_refused(tmp_path, data):
    other = torch.zeros(1, requires_grad=True)
    for number, see in enumerate((Forgetful.apply, lambda x: x.detach() + other)):
        with pytest.raises(UserError, match="passes no gradient to its input"):
            fit_blind(tmp_path / str(number), data, see, "adversarial")


@pytest.mark.parametrize(
    "objective",
    ["free", {"name": "adversarial", "attack": {"name": "pgd", "mode": "train", "threat": "linf:0.1"}}],
)
def test_the_gradient_is_looked_for_in_the_mode_of_the_attack(tmp_path, data, objective):
    recipe = short(tmp_path / "run", data, objective=objective)
    split = load_data(recipe.data, "train")
    for when in (False, True):
        model = load_model(recipe.model, num_classes=split.num_classes, seed=0)

        def hide(module, args, when=when):
            return (args[0].detach() if module.training == when else args[0],)

        model.register_forward_pre_hook(hide)
        job = Trainer(recipe, model, split, quiet=True)
        if when:
            with pytest.raises(UserError, match="passes no gradient to its input"):
                notes(job)
        else:
            assert not notes(job)


def test_a_gradient_of_zero_is_said(tmp_path, data, capsys):
    fit_blind(tmp_path / "rounded", data, torch.round, "adversarial")
    assert "the gradient at the images is zero at the start" in " ".join(capsys.readouterr().err.split())
    fit_blind(tmp_path / "clean", data, torch.Tensor.detach, "standard")
    fit_blind(tmp_path / "seen", data, torch.Tensor.clone, "adversarial")
    assert "gradient" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, note",
    [
        ("schedule.warmup_epochs=10", "the whole run is warm-up: schedule.warmup_epochs"),
        ("optimiser.lr=1e-7", "final_lr 1e-06 is above optimiser.lr 1e-07"),
        ("optimiser.lr=1e-3 schedule.warmup_epochs=1 schedule.warmup_lr=0.1", "warmup_lr 0.1 is above optimiser.lr"),
        ("schedule.milestones=3", "schedule.milestones has no effect: it is for step, .* is cosine"),
        ("schedule=onecycle schedule.warmup_epochs=1", "warmup_epochs has no effect: it is for cosine"),
        ("schedule=step", "the rate stays constant: .*milestones is empty"),
        (
            "schedule=step schedule.milestones=3,40",
            "ends before a milestone: schedule.milestones has 40, train",
        ),
        ("optimiser=sgd optimiser.nesterov=true optimiser.momentum=0", "nesterov has no effect"),
        ("optimiser.momentum=0.8", "momentum has no effect: it is for sgd"),
        ("sharpness=sam sharpness.from_epoch=10", "sam has no effect: sharpness.from_epoch 10"),
        ("penalty.of=conv", "penalty.of has no effect: penalty.l1 is 0"),
        ("objective=adversarial objective.combine=random", "objective.combine has no effect"),
        ("objective=trades objective.warmup.epochs=10", "whole run is warm-up: objective.warmup"),
        (
            "objective=free objective.warmup.clean=4 objective.warmup.epochs=6",
            "whole run is warm-up: objective.warmup",
        ),
        ("objective=rspc objective.warmup_epochs=20", "the whole run is warm-up: objective.warmup_epochs"),
        (
            "objective=rspc objective.choose=random objective.occluder.lr=1e-3",
            "occluder have no effect",
        ),
        (
            "objective=rspc objective.choose=random objective.occluder_objective=ce",
            "occluder have no effect",
        ),
        ("objective=rspc objective.damage=drop objective.noise=normalised", "objective.noise has no effect"),
        ("objective=rspc objective.fill=mean", "objective.fill has no effect"),
    ],
)
def test_settings_without_effect_or_with_an_unexpected_one_are_noted(words, note):
    found = list(recipe_notes(read_recipe(None, words.split())))
    assert len(found) == 1 and re.search(note, found[0]), found


def test_no_recipe_of_ours_needs_a_note():
    files = [file for file in sorted(RECIPES.rglob("*.yaml")) if not file.name.startswith("_")]
    found = {str(file.relative_to(RECIPES)): list(recipe_notes(read_recipe(file))) for file in files}
    assert found and not {name: lines for name, lines in found.items() if lines}
