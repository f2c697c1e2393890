"""What a scale puts in place of the paper's models."""

import pytest
from toy import toy

from hardtack.studies.scaled import at_scale, with_stand_in
from hardtack.studies.study import parse_study
from hardtack.studies.unit import units_of

MODELS = {"large_224": "large_32", "small_224": {"name": "tiny_32", "options": {"depth": 1}}}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("large_224", {"name": "large_32"}),
        ({"name": "large_224", "options": {"drop_path": 0.1}}, {"name": "large_32", "options": {"drop_path": 0.1}}),
        (
            {"name": "small_224", "mean": [0, 0, 0], "options": {"drop_path": 0.1}},
            {"name": "tiny_32", "mean": [0, 0, 0], "options": {"depth": 1}},
        ),
        ("other", "other"),
    ],
)
def test_a_stand_in_takes_the_name_and_one_with_options_only_these(model, expected):
    assert with_stand_in({"model": model, "train": {"epochs": 1}}, MODELS)["model"] == expected
    assert with_stand_in({"train": {}}, MODELS) == {"train": {}}


def test_stand_ins_come_after_the_recipe_and_before_what_the_scale_says_of_a_row():
    values = toy()
    values["trainings"]["standard"]["recipe"] = "digits/standard"  # its model is vit_digits
    values["rows"]["small"] = {"train": {"epochs": 3}}
    values["scales"]["smoke"] |= {
        "models": {"vit_digits": {"name": "resnet8_cifar"}}, "rows": {"large": {"model": {"options": {"depth": 7}}}},
    }  # fmt: skip
    units = units_of(at_scale(parse_study("toy", values), "smoke"))
    models = {(unit.row, unit.training): unit.settings["model"] for unit in units}
    assert models["small", "standard"]["name"] == "resnet8_cifar"
    assert models["large", "standard"] == {"name": "resnet8_cifar", "options": {"depth": 7}}
    paper = {unit.row: unit.settings["model"] for unit in units_of(at_scale(parse_study("toy", values), "paper"))}
    assert paper["large"]["name"] == "vit_digits"
