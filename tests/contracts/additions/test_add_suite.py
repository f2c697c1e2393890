"""A suite of the user's own is one file: with `--import` it is listed, evaluated, stored, compared and reported."""

import pytest

from hardtack.base.registry import metrics, suites
from hardtack.commands.cli import main
from hardtack.results import read_results, read_runs
from tiny_runs import write_data

SOURCE = """
from dataclasses import dataclass
import torch
from hardtack.base.registry import metrics, suites
from hardtack.evaluation import ImageView, Suite

@suites.register("dimmed", help="Accuracy on darker images.")
@dataclass(frozen=True, kw_only=True)
class Dimmed(Suite):
    takes = ("severities",)
    share: float = 0.5

    def views(self, config, context):
        return [ImageView(name="dark", show=lambda x, index: x * self.share, settings={"share": self.share})]

    def results(self, measurement):
        right = measurement.columns["correct@dark"]
        return [measurement.mean("dimmed_score", right, attack=f"share {self.share}")]

@metrics.register("dimmed_score", title="Right in the dark", percent=True, order=0)
def dimmed_score(result, columns):
    return columns["correct@dark"]
"""
MODEL = ["model=vit_digits", "model.options.depth=1", "model.options.width=16", "model.options.patch_size=4"]


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "d.npz")
    file = tmp_path / "my_suite.py"
    file.write_text(SOURCE)
    yield str(file)
    suites._entries.pop("dimmed", None)
    metrics._entries.pop("dimmed_score", None)


def evaluate(plugin, name, *words, seed=0):
    where = [f"output=runs/{name}", "data=npz:d.npz", "data.workers=0", f"runtime.seed={seed}", "runtime.device=cpu"]
    return main(["--import", plugin, "evaluate", *MODEL, "suite=dimmed", *where, *words])


def test_it_is_listed(plugin, capsys):
    assert main(["--import", plugin, "list", "suites"]) == 0
    assert "Accuracy on darker images." in capsys.readouterr().out


def test_it_is_evaluated_stored_compared_and_reported(plugin, tmp_path, capsys):
    for name, seed in (("a", 0), ("b", 1)):
        assert evaluate(plugin, name, "dimmed.share=0.25", seed=seed) == 0
    assert "dimmed score" in capsys.readouterr().out
    (result,) = [result for result in read_results("runs/a") if result.metric == "dimmed_score"]
    assert result.suite == "dimmed" and result.attack == "share 0.25" and "dimmed.share=0.25" in result.extra["words"]
    assert result.low <= result.value <= result.high and result.n == 12
    assert main(["--import", plugin, "compare", "runs/a", "runs/b"]) == 0
    assert "dimmed" in capsys.readouterr().out
    assert main(["--import", plugin, "report", "runs", "--output", "page.html"]) == 0
    assert "Right in the dark" in (tmp_path / "page.html").read_text()
    assert len(read_runs("runs")) == 2


def test_its_own_settings_are_part_of_the_id_and_are_checked(plugin, capsys):
    assert evaluate(plugin, "a", "dimmed.share=0.25") == 0
    assert evaluate(plugin, "a", "dimmed.share=0.75") == 0
    assert evaluate(plugin, "a", "dimmed.share=0.75") == 0, "recalled"
    assert len({result.evaluation for result in read_results("runs/a")}) == 2
    assert evaluate(plugin, "a", "dimmed.shear=0.75") == 2
    assert "did you mean 'dimmed.share'" in capsys.readouterr().err
    assert evaluate(plugin, "a", "tier=fast") == 2
    assert "'tier' is a setting of suite=autoattack" in capsys.readouterr().err
    assert main(["--import", plugin, "evaluate", *MODEL, "data=npz:d.npz", "suite=clean", "dimmed.share=1"]) == 2
    assert "are settings of suite=dimmed" in capsys.readouterr().err


def test_it_takes_settings_of_built_in_suites_that_it_names(plugin):
    assert evaluate(plugin, "a", "severities=[1,2]") == 0


def test_it_runs_beside_built_in_suites(plugin):
    assert evaluate(plugin, "a", "suite=clean,dimmed", "dimmed.share=0.5") == 0
    assert {result.suite for result in read_results("runs/a")} == {"clean", "dimmed"}


def test_it_is_verified(plugin, capsys):
    assert evaluate(plugin, "a") == 0
    words = [*MODEL, "data=npz:d.npz", "data.workers=0"]
    assert main(["--import", plugin, "verify", "runs/a", *words]) == 0, capsys.readouterr()


def test_without_its_file_there_is_no_such_suite(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "d.npz")
    assert main(["evaluate", *MODEL, "data=npz:d.npz", "suite=dimmed"]) == 2
    assert "there is no suite 'dimmed'" in capsys.readouterr().err


def test_a_class_that_is_no_suite_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "d.npz")
    file = tmp_path / "wrong.py"
    file.write_text('from hardtack.base.registry import suites\n\n@suites.register("odd")\nclass Odd:\n    pass\n')
    try:
        assert main(["--import", str(file), "evaluate", *MODEL, "data=npz:d.npz", "suite=odd"]) == 2
        assert "must be a class derived from hardtack.evaluation.Suite" in capsys.readouterr().err
    finally:
        suites._entries.pop("odd", None)
