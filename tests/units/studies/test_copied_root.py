"""Units trained in a copy of the studies' folder, as on another machine: recipes name the folder itself."""

import shutil

import yaml
from toy import toy

from hardtack.studies.measure import train_unit
from hardtack.studies.measuring import Measuring
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import parse_study
from hardtack.studies.unit import units_of


def test_a_unit_goes_on_in_another_copy(tmp_path):
    values = toy()
    values["rows"]["large"]["start"] = "small/standard"
    values["rows"]["large"]["model"] = dict(values["rows"]["small"]["model"])
    units = units_of(at_scale(parse_study("toy", values), "smoke"), words={"runtime.device": "cpu"})
    unit = next(unit for unit in units if (unit.row, unit.training) == ("large", "standard"))
    home, one, two = (tmp_path / name for name in ("home", "one", "two"))
    folder = train_unit(unit, Measuring(root=one, home=home, units=units, quiet=True))
    assert folder.parent.parent == one and not home.exists()
    text = (folder / "config.yaml").read_text()
    config = yaml.safe_load(text)
    assert config["output"] == str(home / "models" / folder.name)
    assert config["model"]["weights"] == str(home / "models" / unit.start.folder(one).name)
    shutil.copytree(one, two)  # another machine goes on with what was sent back
    again = train_unit(unit, Measuring(root=two, home=home, units=units, quiet=True))
    assert (again / "config.yaml").read_text() == text
    shutil.copytree(one, home)  # and so does a command without other machines
    alone = train_unit(unit, Measuring(root=home, units=units, quiet=True))
    assert (alone / "config.yaml").read_text() == text
