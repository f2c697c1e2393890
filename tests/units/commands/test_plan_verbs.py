"""`hardtack plan` before the words of a command: analyze, corrupt, evaluate, train and study."""

import pytest

from hardtack.commands.cli import main
from tiny_runs import MODEL, write_data


@pytest.fixture
def words(tmp_path):
    data = write_data(tmp_path / "data.npz")
    options = [f"model.options.{key}={value}" for key, value in MODEL["options"].items()]
    return [f"model={MODEL['name']}", "model.image_size=8", f"data=npz:{data}", "runtime.device=cpu", *options]


def test_analyses_and_copies_are_planned_and_nothing_is_written(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main(["plan", "analyze", "jacobian", "saliency", "n=6", *words]) == 0
    said = capsys.readouterr().out
    assert "analysis jacobian, 6 images" in said and "analysis saliency" in said and "expected in total" in said
    assert main(["plan", "corrupt", words[2].removeprefix("data="), "copy", "types=fog", "data.validation=0.2"]) == 0
    said = capsys.readouterr().out
    assert "1 types × 5 severities" in said and "1 file of" in said and "disk: about" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_the_verb_may_be_named(words, capsys):
    assert main(["plan", "evaluate", *words, "suite=clean"]) == 0
    assert "plan: clean, 12 images" in capsys.readouterr().out
    assert main(["plan", "train", *words]) == 2, "no section of these is of training alone, and it is one"
    assert "batch_size 128 exceeds the 36 images" in capsys.readouterr().err


def test_on_two_workers(words, capsys):
    assert main(["plan", "evaluate", *words, "suite=pgd", "workers=2"]) == 0
    said = capsys.readouterr().out
    assert "expected wall time" in said and "2 workers" in said


@pytest.mark.parametrize(
    "typed, said",
    [
        (["evaluate", "digits/trades"], "digits/trades is a recipe"),
        (["train", "digits/tradez"], "there is no recipe 'digits/tradez'"),
        (["study"], "name a study"),
        (["attack", "runs/x"], "plan has no estimate for attack; it has one for train, evaluate,"),
        (["corrupt"], "plan corrupt takes the words of corrupt"),
        (["corrupt", "digits", "out", "workers=2"], "leave out what says where it runs"),
        (["analyze", "jacobain"], "did you mean 'jacobian'"),
        (["analyze", "jacobian", "--on", "ray"], "leave out what says where it runs"),
        (["corrupt", "digits", "out", "types=fogg"], "fogg"),
    ],
)
def test_mistakes(typed, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *typed]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
