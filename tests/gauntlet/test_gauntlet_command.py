"""`hardtack gauntlet` on a run folder of one's own; its exit code says whether a number is silently wrong."""

import json
import sys

import pytest

import hardtack as ht
from hardtack.commands.cli import main

TINY = {
    "data.limit": 200,
    "data.validation": 0.1,
    "model.options": {"depth": 1, "width": 16, "heads": 2},
    "train.epochs": 4,
    "train.batch_size": 16,
    "optimiser.lr": 5e-3,
    "runtime.device": "cpu",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small transformer, trained for a few seconds on the digits."""
    return ht.train("digits/standard", quiet=True, output=str(tmp_path_factory.mktemp("runs") / "core"), **TINY)


def gauntlet(run, folder, *words):
    settings = [f"core={run}", f"output={folder}", "threat=linf:0.1", "n=6", "runtime.device=cpu"]
    return main(["gauntlet", *settings, *words])


def test_the_table_is_printed_and_kept_and_the_exit_code_says_that_nothing_is_silently_wrong(run, tmp_path, capsys):
    assert gauntlet(run, tmp_path, "evaluators=fast", "mechanisms=undefended,temperature_low") == 0
    text = capsys.readouterr().out
    assert "undefended" in text and "temperature_low" in text and "FALSE ALARM" in text
    rows = json.loads((tmp_path / "gauntlet.json").read_text())["rows"]
    assert {row["verdict"] for row in rows} == {"right"} and {row["n"] for row in rows} == {6}
    assert (tmp_path / "gauntlet.md").is_file() and (tmp_path / "gauntlet.txt").read_text() == text


def test_a_number_that_is_silently_wrong_gives_exit_code_1(run, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    words = ["evaluators=believer", "mechanisms=mirror,adversarial", "--import", str(file)]
    assert gauntlet(run, tmp_path, *words) == 1
    text = capsys.readouterr().out
    assert "gain=" in text, "a drawn parameter is shown"
    assert "SILENT" in text and "left out: adversarial: core" in text and "robust=RUN" in text
    assert main(["list", "mechanisms", "mirrored"]) == 0 and "mirror" in capsys.readouterr().out
    assert main(["list", "evaluators", "believes"]) == 0 and "believer" in capsys.readouterr().out


PLUGIN = """
import torch
from torch import nn
from hardtack.base.registry import evaluators, mechanisms
from hardtack.evaluation.gauntlet import Claim, Defence

class Mirror(nn.Module):
    def __init__(self, core, gain):
        super().__init__()
        self.core, self.gain = core, gain

    def forward(self, x):
        return self.gain * (self.core(x) + self.core(x.flip(-1)))

@mechanisms.register("mirror", help="the sum over the image and its mirrored copy")
def mirror(core, draw):
    model = Mirror(core.model, draw.uniform("gain", 1, 2))
    return Defence(model=model, insiders=(model,), honest=True)

@evaluators.register("believer", help="believes that every image is robust")
def believer(model, x, y, *, threat, runtime):
    return Claim(robust_accuracy=1.0)
"""


@pytest.fixture(autouse=True)
def forget_plugins():
    from hardtack.base.registry import evaluators, mechanisms

    yield
    mechanisms._entries.pop("mirror", None)
    evaluators._entries.pop("believer", None)


@pytest.mark.parametrize(
    "words, message",
    [
        (["mechanisms=rippel"], "did you mean 'ripple'"),
        (["evaluators=fsat"], "did you mean 'fast'"),
        (["n=0"], "'n'"),
        (["seeds=1"], "did you mean 'seed'"),
    ],
)
def test_mistakes_are_named(run, tmp_path, capsys, words, message):
    assert gauntlet(run, tmp_path, *words) == 2
    assert message in capsys.readouterr().err


def test_the_core_may_be_named_first_but_not_twice(run, tmp_path, capsys):
    words = [f"output={tmp_path}", "threat=linf:0.1", "n=4", "evaluators=fast", "mechanisms=undefended"]
    assert main(["gauntlet", str(run), *words]) == 0
    assert main(["gauntlet", str(run), "core=digits", *words]) == 2
    assert "names the core twice" in capsys.readouterr().err


def test_a_run_without_a_threat_is_refused(run, tmp_path, capsys):
    assert main(["gauntlet", f"core={run}", f"output={tmp_path}"]) == 2
    assert "threat=" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["official", "torchattacks", "foolbox", "art"])
def test_an_evaluator_whose_package_is_missing_says_what_to_install(run, tmp_path, capsys, name, monkeypatch):
    modules = {"official": "autoattack", "art": "art.attacks.evasion"}
    monkeypatch.setitem(sys.modules, modules.get(name, name), None)  # as if it were not installed
    assert gauntlet(run, tmp_path, f"evaluators={name}", "mechanisms=undefended") == 2
    assert "pip install" in capsys.readouterr().err


def test_a_recipe_is_trained_once_and_kept_in_the_output_folder(tmp_path, capsys):
    small = [
        "recipe.data.limit=64",
        "recipe.train.epochs=1",
        "recipe.model.options.depth=1",
        "recipe.validation.every=1",
    ]
    words = [*small, "threat=linf:0.2", "n=4", "evaluators=fast", "mechanisms=undefended", f"output={tmp_path}"]
    assert main(["gauntlet", "core=digits/standard", *words]) in (0, 1)
    weights = tmp_path / "cores" / "digits-standard" / "checkpoints" / "last.safetensors"
    trained = weights.stat().st_mtime_ns
    assert main(["gauntlet", "digits/standard", *words]) in (0, 1)
    assert weights.stat().st_mtime_ns == trained
