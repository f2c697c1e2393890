"""Units: which settings make two runs the same run, and what starts from what."""

import pytest
from toy import toy

from hardtack.base.errors import UserError
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import parse_study
from hardtack.studies.unit import references, resolve_rows, units_of


def units(values, scale="smoke", **settings):
    return {
        (unit.row, unit.training, unit.seed): unit
        for unit in units_of(at_scale(parse_study("toy", values), scale), **settings)
    }


def test_a_unit_for_every_row_training_and_seed():
    chosen = units(toy(), seeds=2)
    assert len(chosen) == 8 and len({unit.digest for unit in chosen.values()}) == 8
    assert chosen["small", "standard", 1].settings["runtime"]["seed"] == 1
    values = toy()
    values["rows"]["large"]["skip"] = ["standard"]
    assert ("large", "standard", 0) not in units(values)


def test_a_row_may_have_another_recipe_than_its_training():
    values = toy()
    values["rows"]["large"]["recipe"] = "digits/trades"
    chosen = units(values)
    assert chosen["small", "standard", 0].settings["objective"] == "standard"
    assert chosen["large", "standard", 0].settings["objective"]["name"] == "trades"
    assert chosen["large", "adversarial", 0].settings["objective"]["name"] == "adversarial"


def test_where_a_run_is_computed_does_not_change_which_run_it_is():
    plain = units(toy())["small", "standard", 0].digest
    for word in ("data.root", "data.workers", "runtime.device", "runtime.compile", "train.log_every"):
        assert units(toy(), words={word: "x"})["small", "standard", 0].digest == plain, word
    for word, value in (
        ("train.epochs", 3),
        ("data.limit", 32),
        ("model.options.depth", 3),
        ("runtime.precision", "bf16"),
    ):
        assert units(toy(), words={word: value})["small", "standard", 0].digest != plain, word


def test_the_same_settings_in_another_row_are_the_same_run(tmp_path):
    values = toy()
    values["rows"]["large"]["model"] = dict(values["rows"]["small"]["model"])
    chosen = units(values)
    first, second = chosen["small", "standard", 0], chosen["large", "standard", 0]
    assert first.digest == second.digest and first.folder(tmp_path) != second.folder(tmp_path)
    first.folder(tmp_path).mkdir(parents=True)
    assert second.folder(tmp_path) == first.folder(tmp_path)


def test_a_short_name_of_a_section_is_the_long_one():
    values = toy()
    values["rows"]["small"]["model"] = "vit_digits"
    long = toy()
    long["rows"]["small"]["model"] = {"name": "vit_digits"}
    assert units(values)["small", "standard", 0].digest == units(long)["small", "standard", 0].digest


def test_a_row_that_starts_from_another_depends_on_it(tmp_path):
    values = toy()
    values["rows"]["large"]["start"] = "small/standard"
    chosen = units(values)
    start, unit = chosen["small", "standard", 0], chosen["large", "adversarial", 0]
    assert unit.start.digest == start.digest
    assert unit.recipe_values(tmp_path)["model"]["weights"] == str(start.folder(tmp_path))
    values["rows"]["small"]["optimiser"] = {"lr": 0.5}
    assert units(values)["large", "adversarial", 0].digest != unit.digest
    values["rows"]["small"]["start"] = "large"
    with pytest.raises(UserError, match="starts from itself"):
        units(values)
    values["rows"]["small"]["start"] = "larg"
    with pytest.raises(UserError, match=r"has no row 'larg' \(did you mean 'large'"):
        units(values)


def test_a_column_may_name_the_models_of_other_rows(tmp_path):
    values = toy()
    values["columns"]["clean"]["others"] = ["row:large", "row:small/standard"]
    study = parse_study("toy", values)
    everything = units_of(at_scale(study, "smoke"), seeds=2)
    unit = next(unit for unit in everything if (unit.row, unit.training, unit.seed) == ("small", "adversarial", 1))
    named = references(study.columns["clean"], unit, everything)
    assert [(other.row, other.training, other.seed) for other in named] == [
        ("large", "adversarial", 1),
        ("small", "standard", 1),
    ]
    resolved = resolve_rows(study.columns["clean"].settings, unit, everything, tmp_path)
    assert resolved["others"] == [str(other.folder(tmp_path)) for other in named]
    values["columns"]["clean"]["others"] = ["row:largest"]
    with pytest.raises(UserError, match=r"'row:largest' names no row .*did you mean 'large'"):
        references(parse_study("toy", values).columns["clean"], unit, everything)


def test_changed_code_of_the_users_is_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def build(): ...")
    values = toy()
    values["rows"]["small"]["model"] = "mine.py:build"

    def digests():
        return {unit.row: unit.digest for unit in units_of(at_scale(parse_study("toy", values), "smoke"))}

    before = digests()
    assert digests() == before
    (tmp_path / "mine.py").write_text("def build(): return 1")
    after = digests()
    assert after["small"] != before["small"] and after["large"] == before["large"]
