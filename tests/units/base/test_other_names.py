"""What other packages call a setting or a name leads to ours, in the place where it was typed."""

import dataclasses
import re

import pytest

from hardtack.base import registry
from hardtack.base.config import build, choose
from hardtack.base.errors import UnknownSetting, UserError, did_you_mean
from hardtack.base.other_names import OTHER_NAMES
from hardtack.commands.list import LISTS
from hardtack.commands.settings_table import settings_rows
from hardtack.models.options import OPTIONS
from hardtack.threats import BALLS
from hardtack.training import Recipe


def test_every_name_in_the_table_leads_to_something_that_exists():
    rows = {row.name for row in settings_rows()}
    leaves = {*OPTIONS} | {name.rpartition(".")[2] for name in rows}
    # attacks in an objective, and options of a model, have sections that are chosen by name
    rows |= {f"objective.{name}" for name in rows if name.startswith("attack.")}
    rows |= {f"model.options.{name}" for name in OPTIONS}
    names = {*BALLS, *LISTS, "models", "settings"}
    for table in (*registry.BY_NAME, registry.verbs, registry.executors):
        names |= set(table.names())
    wrong = {}
    for word, targets in OTHER_NAMES.items():
        assert word == word.lower() and "-" not in word
        for target in targets:
            first, _, rest = target.partition(" ")
            parts = [first.partition("=")[0], *(part.partition("=")[0] for part in rest.split())]
            if not all(part in rows | leaves | names for part in parts):
                wrong[word] = target
    assert not wrong


RECIPE = {
    "lr": "'optimiser.lr'", "lr0": "'optimiser.lr'", "epochs": "'train.epochs'", "imgsz": "'data.image_size'",
    "batch-size": "'train.batch_size'", "amp": "'runtime.precision'", "wandb": "'train.track'", "opt": "'optimiser'",
    "milestones": "'schedule.milestones'", "limit": "'data.limit'", "reprob": "'augment.erase'",
    "trades_beta": "'objective.beta'", "num_classes": "'model.num_classes'", "epsilon": "'objective.attack.threat=",
    "num_steps": "'objective.attack.steps'", "seed": "'runtime.seed'", "nesterov": "'optimiser.nesterov'",
    "trian": "'train'", "dataset": "'data'", "save_dir": "'output'",
}  # fmt: skip


@pytest.mark.parametrize("key", RECIPE)
def test_a_setting_of_a_recipe(key):
    with pytest.raises(UnknownSetting, match=re.escape(f"unknown key '{key}' (did you mean {RECIPE[key]}")):
        build(Recipe, {key: 1})


@pytest.mark.parametrize(
    "section, key, near",
    [
        ("train", "lr", "'optimiser.lr'"),  # of another section
        ("train", "num_epochs", "'train.epochs'"),
        ("optimiser", "learning_rate", "'optimiser.lr'"),
        ("optimiser", "wd", "'optimiser.weight_decay'"),
        ("optimiser", "momentun", "'optimiser.momentum'"),
        ("data", "data_dir", "'data.root'"),
        ("model", "ckpt", "'model.weights'"),
        ("schedule", "min_lr", "'schedule.final_lr'"),
        ("augment", "fliplr", "'augment.flip'"),
        ("runtime", "gpu", "'runtime.device'"),
    ],
)
def test_a_setting_of_a_section(section, key, near):
    with pytest.raises(UnknownSetting) as caught:
        build(Recipe, {section: {key: 1}})
    assert f"unknown key '{section}.{key}' (did you mean {near}?)" in str(caught.value)
    assert caught.value.path == f"{section}.{key}"


@pytest.mark.parametrize(
    "key, near",
    [("eps", "threat=linf:8/255"), ("step_size", "step"), ("nb_iter", "steps"), ("num_random_init", "restarts"),
     ("random_start", "start"), ("eps_step", "step"), ("mu", "momentum"), ("stepps", "steps")],
)  # fmt: skip
def test_a_setting_of_an_attack(key, near):
    with pytest.raises(
        UnknownSetting, match=re.escape(f"unknown key 'attack.{key}' (did you mean 'attack.{near}'?)")
    ) as caught:
        choose(registry.attacks, {"name": "pgd", "threat": "linf:0.1", key: 1}, path="attack")
    assert caught.value.owner == "attack:pgd"


@pytest.mark.parametrize(
    "table, name, near",
    [
        ("attacks", "LinfPGD", "(did you mean 'pgd'?)"),
        ("attacks", "BIM", "(did you mean 'pgd attack.start=clean'?)"),
        ("attacks", "L2CarliniWagnerAttack", "(did you mean 'cw'?)"),
        ("attacks", "MIFGSM", "(did you mean 'momentum_pgd'?)"),
        ("attacks", "AutoAttack", "(suite=autoattack)"),
        ("attacks", "HSJA", "(did you mean 'hopskipjump'?)"),
        ("suites", "AA", "(did you mean 'autoattack'?)"),
        ("suites", "deepfool", "; deepfool is an attack (suite=pgd attack=deepfool)"),
        ("suites", "trades", "; trades is an objective (objective=trades)"),
        ("suites", "imagenet-c", "(did you mean 'corruptions'?)"),
        ("suites", "fog", "(suite=corruptions types=fog)"),
        ("objectives", "PGD-AT", "(did you mean 'adversarial'?)"),
        ("objectives", "erm", "(did you mean 'standard'?)"),
        ("objectives", "awp", "(did you mean 'adversarial sharpness=awp'?)"),
        ("verbs", "val", "(did you mean 'evaluate'?)"),
        ("verbs", "fit", "(did you mean 'train'?)"),
        ("datasets", "ImageFolder", "(did you mean 'folder'?)"),
        ("attacks", "apdg", "(did you mean 'apgd'?)"),
    ],
)
def test_a_name(table, name, near):
    with pytest.raises(UserError) as caught:
        getattr(registry, table).get(name)
    assert near in str(caught.value)


def test_what_is_spelt_alike_still_counts():
    assert did_you_mean("pdg", ["pgd", "fgsm"]) == " (did you mean 'pgd'?)"
    assert did_you_mean("weight-decay", ["weight_decay"]) == " (did you mean 'weight_decay'?)"
    assert did_you_mean("eps", ["steps"]) == " (did you mean 'steps'?)"  # there is no threat among them
    with pytest.raises(UnknownSetting, match=r"known keys: number$"):
        build(dataclasses.make_dataclass("Plain", [("number", int, 1)]), {"qqq": 2})
