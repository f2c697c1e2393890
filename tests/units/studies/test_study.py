"""Study files: what they may say, and the message for what they may not."""

import dataclasses

import pytest
import yaml
from toy import toy

from hardtack.base.errors import UserError
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import SECTIONS, load_study, parse_study


def test_the_sections_are_those_of_a_recipe():
    from hardtack.training import Recipe

    assert {*SECTIONS} == {item.name for item in dataclasses.fields(Recipe)} - {"name", "output"}


def test_a_study_is_read_whole():
    study = parse_study("toy", toy())
    assert list(study.rows) == ["small", "large"] and study.groups == {"all": ["small", "large"]}
    assert study.rows["small"].settings == {"model": {"name": "vit_digits", "options": {"depth": 1}}}
    assert study.columns["clean"].training == "adversarial"  # the last one listed
    assert study.columns["pgd"].settings == {"threat": "linf:0.1", "attack": {"steps": 1}}
    assert study.claims[1].says == study.claims[1].test == "pgd(small) < clean(small)"
    assert study.paper_says["small"] == {"vanilla": 90.5, "clean": 80, "pgd": None, "worst": 40}


def test_a_grid_has_a_row_for_every_combination():
    grid = {
        "mixup": {"no": {}, "mixup": {"title": "Mixup", "augment": {"mixup": 0.8}}},
        "erase": {"no": {}, "erasing": {"title": "Erasing", "augment": {"erase": 0.25}}},
    }
    said = {name: {} for name in ("none", "erasing", "mixup", "mixup_erasing")}
    columns = {"clean": {"suite": "clean", "metric": "clean_accuracy", "ours": True}}
    values = toy(grid=grid, rows={"none": {"x": 3}}, columns=columns, paper_says=said, claims=[], plots=[])
    values["scales"] = {"smoke": {}, "short": {}, "paper": {}}
    study = parse_study("toy", values)
    assert list(study.rows) == list(said)
    assert study.rows["mixup_erasing"].settings == {"augment": {"mixup": 0.8, "erase": 0.25}}
    assert study.rows["mixup_erasing"].title == "Mixup + Erasing" and study.rows["none"].x == 3


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("rows", {"small": {"modle": "x"}}, r"unknown key 'rows.small.modle' \(did you mean 'model'\?\)"),
        (
            "rows",
            {"small": {"trainings": {"standart": {}}}},
            r"there is no training 'standart' \(did you mean 'standard'",
        ),
        ("rows", {"a b": {}}, "the name 'a b' may hold only letters"),
        ("rows", {}, "a study needs rows"),
        ("columns", {"clean": {"metric": "clean_accuracy"}}, "needs exactly one of protocol, suite"),
        ("columns", {"clean": {"suite": "clean"}}, "name the metric of suite clean"),
        ("columns", {"clean": {"suite": "clean", "analysis": "sparsity"}}, "exactly one of"),
        ("columns", {"size": {"fact": "weight"}}, "there is no fact 'weight'"),
        ("columns", {"clean": {"suite": "clean", "metric": "m", "training": "x"}}, "there is no training 'x'"),
        ("columns", {"worst": {"worst_of": ["pdg"]}}, "'pdg' is no column of the same training"),
        ("paper_says", {"small": {}}, "paper_says: row 'large' is missing|column 'vanilla' is missing"),
        ("paper_says", {"smal": {}}, r"there is no row 'smal' \(did you mean 'small'"),
        ("claims", ["clean(larg) > clean(small)"], "larg"),
        ("claims", [{"say": "x", "test": "y"}], "claims\\[0\\]"),
        ("plots", [{"kind": "lines", "y": "cleen"}], r"there is no column 'cleen' \(did you mean 'clean'"),
        ("plots", [{"kind": "pie", "y": "clean"}], r"plots\[0\]"),
        ("scales", {"smoke": {}, "short": {}}, "paper is missing"),
        ("scales", {"smoke": {"keep": ["smal"]}, "short": {}, "paper": {}}, "there is no row 'smal'"),
        ("scales", {"smoke": {"setting": {}}, "short": {}, "paper": {}}, r"did you mean 'settings'"),
        ("scales", {"tiny": {}}, "there is no scale 'tiny'"),
        ("scales", {"smoke": {"base": "nothing"}, "short": {}, "paper": {}}, "there is no scale preset 'nothing'"),
        ("kind", "poem", "kind"),
    ],
)
def test_a_wrong_file_gets_a_message_that_names_the_place(section, change, message):
    values = toy(**{section: change})
    if section == "columns":  # other columns stay, so that only the wrong one is wrong
        values["columns"] = {**toy()["columns"], **change}
    with pytest.raises(UserError, match=message):
        parse_study("toy", values)


def test_every_cell_of_the_paper_is_a_number_or_null():
    said = toy()["paper_says"]
    said["small"]["clean"] = "80 %"
    with pytest.raises(UserError, match=r"paper_says.small.clean: expected a number or null, found '80 %'"):
        parse_study("toy", toy(paper_says=said))
    del said["small"]["clean"]
    with pytest.raises(UserError, match=r"paper_says.small: column 'clean' is missing"):
        parse_study("toy", toy(paper_says=said))


def test_a_scale_leaves_rows_and_columns_out():
    study = parse_study("toy", toy())
    short = at_scale(study, "short")
    assert list(short.rows) == ["small"] and "pgd" not in short.columns and "clean" in short.columns
    with pytest.raises(UserError, match=r"does not run large at scale short; it runs small"):
        at_scale(study, "short", rows=["large"])
    with pytest.raises(UserError, match=r"there is no scale 'shrot' \(did you mean 'short'"):
        at_scale(study, "shrot")
    with pytest.raises(UserError, match=r"has no row 'larg' \(did you mean 'large'"):
        at_scale(study, "smoke", rows=["larg"])


def test_a_scale_replaces_how_a_column_is_measured_and_keeps_how_it_is_shown():
    values = toy()
    values["columns"]["pgd"]["title"] = "under attack"
    values["scales"]["smoke"]["columns"] = {
        "pgd": {"suite": "clean", "metric": "clean_accuracy"}, "clean": {"batch_size": 4},
    }  # fmt: skip
    scaled = at_scale(parse_study("toy", values), "smoke")
    assert scaled.columns["pgd"].title == "under attack" and scaled.columns["pgd"].settings == {}
    assert scaled.columns["clean"].settings == {"batch_size": 4} and scaled.columns["clean"].suite == "clean"


def test_layers_of_settings_come_in_order():
    values = toy()
    values["trainings"]["standard"]["train"] = {"epochs": 1, "clip": 1, "batch_size": 1}
    values["rows"]["small"] |= {"train": {"epochs": 2, "clip": 2}, "trainings": {"standard": {"train": {"epochs": 3}}}}
    values["scales"]["paper"] = {
        "settings": {"train": {"epochs": 4, "ema": 0.4}}, "trainings": {"standard": {"train": {"epochs": 5}}},
        "rows": {"small": {"train": {"epochs": 6}, "trainings": {"standard": {"train": {"epochs": 7}}}}},
    }  # fmt: skip
    study = parse_study("toy", values)
    scaled = at_scale(study, "paper")
    train = scaled.settings(study.rows["small"], study.trainings["standard"])["train"]
    assert train == {"epochs": 7, "clip": 2, "batch_size": 1, "ema": 0.4}
    other = scaled.settings(study.rows["large"], study.trainings["standard"])["train"]
    assert other == {"epochs": 5, "clip": 1, "batch_size": 1, "ema": 0.4}


def test_a_scale_keeps_settings_that_the_study_is_about():
    values = toy()
    values["trainings"]["standard"]["augment"] = {"mixup": 0.8}
    values["rows"]["small"] |= {"augment": {"erase": 0.25}, "optimiser": {"weight_decay": 0.5, "lr": 3}}
    values["scales"]["paper"] = {
        "settings": {"augment": {"mixup": 0, "erase": 0, "flip": 0}, "optimiser": {"weight_decay": 0, "lr": 1}},
        "keep_settings": ["augment", "optimiser.weight_decay", "train.ema"],
    }  # fmt: skip
    study = parse_study("toy", values)
    scaled = at_scale(study, "paper")
    small = scaled.settings(study.rows["small"], study.trainings["standard"])
    assert small["augment"] == {"mixup": 0.8, "erase": 0.25, "flip": 0}
    assert small["optimiser"] == {"weight_decay": 0.5, "lr": 1} and "ema" not in small.get("train", {})
    large = scaled.settings(study.rows["large"], study.trainings["standard"])
    assert large["augment"] == {"mixup": 0.8, "erase": 0, "flip": 0} and large["optimiser"]["weight_decay"] == 0
    values["scales"]["paper"]["keep_settings"] = "augmnt"
    with pytest.raises(UserError, match=r"there is no section 'augmnt' \(did you mean 'augment'"):
        parse_study("toy", values)


def test_one_way_of_training_is_written_as_base(tmp_path):
    values = toy(columns={"clean": {"suite": "clean", "metric": "clean_accuracy", "ours": True}}, claims=[], plots=[])
    del values["trainings"], values["paper_says"]
    values["base"] = {"recipe": "digits/standard", "train": {"epochs": 3}}
    values["scales"] = {"smoke": {}, "short": {}, "paper": {}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    (training,) = load_study(path).trainings.values()
    assert (training.name, training.recipe, training.settings) == ("model", "digits/standard", {"train": {"epochs": 3}})
    values["trainings"] = {"other": {"recipe": "digits/trades"}}
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match="both `base` and `trainings`"):
        load_study(path)
