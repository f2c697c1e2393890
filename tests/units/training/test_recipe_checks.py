"""A recipe that cannot work stops at once, with the path of the fault and the nearest right name."""

import dataclasses

import pytest

from hardtack.base.errors import UserError
from hardtack.objectives import StandardConfig, TradesConfig
from hardtack.threats import Threat
from hardtack.training import read_recipe, validation_attack


@pytest.mark.parametrize(
    "word, told",
    [
        ("train.epoch=3", r"train\.epoch'.*did you mean 'train\.epochs'"),
        ("trian.epochs=3", r"trian'.*did you mean 'train'"),
        ("optimizer.lr=1", r"did you mean 'optimiser'"),
        ("train.epochs=0", "epochs"),
        ("train.epochs=1.5", r"train\.epochs"),
        ("train.batch_size=-4", "batch_size"),
        ("train.accumulate=0", "accumulate"),
        ("train.ema=1", "ema"),
        ("train.clip=-1", r"train\.clip"),
        ("train.clip=0", r"train\.clip"),
        ("train.log_every=0", r"train\.log_every"),
        ("validation.every=0", r"validation\.every"),
        ("validation.batch_size=0", r"validation\.batch_size"),
        ("validation.limit=0", r"validation\.limit"),
        ("schedule.name=cosin", "schedule.name"),
        ("schedule.warmup_epochs=-1", r"schedule\.warmup_epochs"),
        ("schedule.rise=1.5", r"schedule\.rise"),
        ("optimiser.name=adam", "optimiser.name"),
        ("optimiser.lr=fast", r"optimiser\.lr"),
        ("objective=trade", r"did you mean 'trades'"),
        ("objective.attack.name=pgd", r"objective\.name' is missing: the default, standard, has no 'attack'"),
        ("objective.label_smothing=0.1", r"objective\.label_smothing'.*did you mean 'objective\.label_smoothing'"),
        ("validation.attack.steps=3", r"validation\.attack\.name' is missing; attacks: "),
        ("train.freeze={head: 1}", r"train\.freeze': input should be a list,"),
        ("model.mean=[0.5]", r"model\.mean': expected a list of 3 numbers, found \[0\.5\]"),
        ("model.std=0.5", r"model\.std': expected a list of 3 numbers, found 0\.5"),
        ("optimiser.betas=[0.9, 0.99, 0.999]", r"optimiser\.betas': expected a list of 2 numbers"),
        ("sharpness.rho=0.1", r"sharpness: rho and from_epoch are settings of sam and awp"),
        ("sharpness.from_epoch=3", r"sharpness: rho and from_epoch are settings of sam and awp"),
        ("runtime.precision=fp16", r"runtime\.precision"),
        ("runtime.device=tpu", "tpu"),
        ("data.validation=1", "validation"),
        ("augment.flip=2", "flip"),
        ("novalue", "key=value"),
    ],
)
def test_faults_are_named(word, told):
    with pytest.raises(UserError, match=told):
        read_recipe(None, [word])


def test_a_misspelt_attack_inside_an_objective_is_found():
    objective = {"name": "trades", "attack": {"name": "pdg", "threat": "linf:0.1"}}
    with pytest.raises(UserError, match=r"objective\.attack.*did you mean 'pgd'"):
        read_recipe(None, objective=objective)


def test_words_win_over_the_file_and_the_file_over_its_base(tmp_path):
    (tmp_path / "_base.yaml").write_text("train: {epochs: 7, batch_size: 32}\noptimiser: {lr: 1/100}\n")
    (tmp_path / "mine.yaml").write_text("base: _base.yaml\ntrain: {epochs: 5}\n")
    recipe = read_recipe(tmp_path / "mine.yaml", ["train.batch_size=8"])
    assert (recipe.train.epochs, recipe.train.batch_size) == (5, 8)
    assert recipe.optimiser.lr == 0.01 and recipe.name == "mine"


def test_another_objective_drops_the_settings_of_the_old_one(tmp_path):
    (tmp_path / "mine.yaml").write_text("objective: {name: trades, beta: 3}\n")
    assert read_recipe(tmp_path / "mine.yaml", ["objective.name=standard"]).objective.label_smoothing == 0


def test_a_default_keeps_its_name_and_settings_when_some_are_given():
    assert read_recipe(None, ["objective.label_smoothing=0.1"]).objective == StandardConfig(label_smoothing=0.1)
    trades = ["objective=trades", "objective.beta=3"]
    changed = read_recipe(None, [*trades, "objective.attack.threat=l2:0.5", "objective.attack.steps=4"]).objective
    threat = Threat.parse("l2:0.5")
    assert changed.attack == dataclasses.replace(TradesConfig().attack, threat=threat, steps=4)
    assert (changed.beta, changed.attack.start) == (3, "gaussian")


def test_a_name_begins_with_that_kinds_own_settings():
    trades = ["objective=trades", "objective.attack.threat=l2:0.5"]
    assert read_recipe(None, [*trades, "objective.attack.name=pgd"]).objective.attack.start == "random"
    assert read_recipe(None, [*trades, "objective.attack.name=fgsm"]).objective.attack.steps == 1
    with pytest.raises(UserError, match=r"objective\.attack\.threat' is missing, for example linf:8/255"):
        read_recipe(None, ["objective=trades", "objective.attack.name=fgsm"])


def test_epochs_are_judged_by_the_threat_that_is_trained_against():
    objective = {"name": "adversarial", "attack": {"name": "fgsm", "threat": "l2:0.5"}}
    judge = validation_attack(read_recipe(None, objective=objective))
    assert judge.threat == Threat.parse("l2:0.5") and judge.steps == 10 and judge.start == "random"
    own = {"attack": {"name": "pgd", "threat": "linf:0.1", "steps": 4}}
    assert validation_attack(read_recipe(None, objective=objective, validation=own)).steps == 4
    assert validation_attack(read_recipe(None)) is None
