"""Other people's run folders are data: no verb runs, imports or opens what they name."""

import json
import shutil
from pathlib import Path

import pytest

from hardtack.commands.cli import main

RUN = Path(__file__).parents[1] / "data" / "v010_finished" / "run"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, tmp_path / "run")
    return tmp_path / "run"


def change_results(run, **fields):
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["evaluation"] == "clean-7dfff66b6bcc"]
    for line in lines:
        line.update(fields)
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "words",
    [
        ["model=os:system", 'model.options.command="touch ran"', "data=digits"],
        ["model=run/evil.py:build", "data=digits"],
        ["model=evil:build", "data=digits"],
        ["model={name: 'run/evil.py:build'}", "data=digits"],
        ["suite=clean", "data=folder:/etc"],
    ],
)
def test_verify_runs_no_code_that_a_result_names(run, words, capsys):
    (run / "evil.py").write_text("open('ran', 'w')\n")
    change_results(run, extra={"words": words})
    assert main(["verify", "run"]) == 2
    assert not Path("ran").exists()
    error = capsys.readouterr().err
    assert "type it yourself" in error and error.count("\n") == 1, error


@pytest.mark.parametrize(
    "suite, word",
    [
        ("pgd", "attack.bpda=run/evil.py:surrogate"),
        ("pgd", "attack.loss=run/evil.py:loss"),
        ("attacks", "attacks=[{name: apgd, loss: 'run/evil.py:loss'}]"),
        ("autoattack", "attack.bpda=run/evil.py:surrogate"),
    ],
)
def test_verify_runs_no_surrogate_and_no_loss_that_a_result_names(run, suite, word, capsys):
    (run / "evil.py").write_text("open('ran', 'w')\n")
    change_results(run, suite=suite, extra={"words": [f"suite={suite}", "data=digits", word]})
    assert main(["verify", "run"]) == 2
    assert not Path("ran").exists()
    assert "type it yourself" in capsys.readouterr().err


def test_verify_runs_code_that_the_user_types(run, capsys):
    (run.parent / "mine.py").write_text(
        "import torch\n"
        "def build():\n"
        "    open('ran', 'w')\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))\n"
    )
    change_results(run, extra={"words": ["model=os:system", "data=digits", "data.image_size=8", "n=24"]})
    assert main(["verify", "run", "model=mine.py:build", "model.image_size=8"]) == 1  # it runs; other weights
    assert Path("ran").exists()
