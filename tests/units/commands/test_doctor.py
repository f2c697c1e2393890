"""The doctor's quick check reads versions; its full check names a package that does not import."""

import os
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from hardtack.commands import doctor
from hardtack.commands.cli import main
from hardtack.commands.docs_files import docs_folder

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def test_its_tables_are_those_of_the_package():
    assert {f"{name}>={lowest}" for name, lowest in doctor.REQUIRED.items()} == set(PROJECT["dependencies"])
    extras = {name: text for name, text in PROJECT["optional-dependencies"].items() if name != "dev"}
    stated = {(line.partition(">=")[0].partition("[")[0], extra) for extra, lines in extras.items() for line in lines}
    assert set(doctor.OPTIONAL.items()) == stated


def test_a_missing_and_an_old_package_are_broken(monkeypatch, capsys):
    versions = {"timm": "0.9.2", "torch": "2.15.0+cu128"}

    def version(name):
        if name == "safetensors":
            raise metadata.PackageNotFoundError(name)
        return versions.get(name, "99.0")

    monkeypatch.setattr(doctor.metadata, "version", version)
    assert main(["doctor"]) == 1
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert "0.9.2 is older than 1.0.20" in lines["timm"] and lines["timm"].startswith("broken")
    assert "not installed" in lines["safetensors"] and "pip install 'safetensors>=0.4.3'" in lines["safetensors"]
    assert lines["torch"].startswith("ok")


def test_a_healthy_quick_check_names_the_full_one(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "hardtack doctor --full" in printed
    assert str(docs_folder()) in printed.replace("\n", "") and (docs_folder() / "trust.md").is_file()


@pytest.mark.parametrize("source, told", [
    ("raise ImportError('libcudart.so is missing')", "ImportError: libcudart.so is missing"),
    ("import os; os._exit(11)", "the process ended with code 11"),
])  # fmt: skip
def test_the_full_check_names_a_package_that_does_not_import(tmp_path, monkeypatch, capsys, source, told):
    (tmp_path / "torch.py").write_text(source)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    assert main(["doctor", "--full"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("broken"))
    assert line.split()[1] == "torch" and told in line
