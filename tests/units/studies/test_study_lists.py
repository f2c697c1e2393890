"""Columns of a study whose images are those of a list: evaluations and analyses take it where it is present."""

import numpy as np
import pytest
import yaml
from PIL import Image
from toy import toy

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.studies.study import parse_study

LIST = {"test_list": "few", "folders": {"few": "few.txt"}}


@pytest.fixture
def study(tmp_path):
    generator = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 3)):
        for name in ("ant", "bee", "cow"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / name / f"{number}.png")
    values = toy(claims=[], plots=[], figures=[])
    values["trainings"] = {"model": {"recipe": "digits/standard", "data": {"name": "folder:photos"}}}
    values["rows"] = {"small": {"model": {"name": "vit_digits", "options": {"depth": 1}}}}
    values["columns"] = {
        "clean": {"suite": "clean", "metric": "clean_accuracy", "ours": True, **LIST},
        "all": {"suite": "clean", "metric": "clean_accuracy", "ours": True},
        "saliency": {"analysis": "saliency", "metric": "saliency_concentration", "ours": True, **LIST},
    }
    values["paper_says"] = {}
    quick = {
        "data": {"validation": 0.25}, "augment": {"crop_padding": 0}, "train": {"epochs": 1, "batch_size": 8},
        "validation": {"every": 1}, "runtime": {"device": "cpu"},
    }  # fmt: skip
    values["scales"] = {"smoke": {"settings": quick}, "short": {}, "paper": {}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def counts(path, **words):
    outcome = ht.study(path, quiet=True, output=str(path.parent / "studies"), data={"root": str(path.parent)}, **words)
    assert not outcome.failures
    return {name: cell["n"] for name, cell in outcome.view["rows"][0]["cells"].items()}


def test_evaluations_and_analyses_take_the_list_that_the_user_names(study):
    everything = {"clean": 9, "all": 9, "saliency": 9}
    assert counts(study) == everything
    few = study.parent / "mine.txt"
    few.write_text("bee/1.png\nant/2.png\n")
    assert counts(study, folders={"few": str(few)}) == {"clean": 2, "all": 9, "saliency": 2}
    few.write_text("bee/1.png\nant/2.png\ncow/0.png\n")  # under the same name
    assert counts(study, folders={"few": str(few)}) == {"clean": 3, "all": 9, "saliency": 3}
    (study.parent / "few.txt").write_text("cow/2.png\n")  # under its usual name
    assert counts(study) == {"clean": 1, "all": 9, "saliency": 1}


def test_a_list_must_be_named_under_folders(study):
    values = yaml.safe_load(study.read_text())
    values["columns"]["clean"]["folders"] = {}
    with pytest.raises(UserError, match="test_list names 'few', which is not listed under `folders:`"):
        parse_study("mine", values)
