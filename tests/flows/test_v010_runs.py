"""Run folders of version 0.1.0 still load, are recalled, resumed, verified and reported, with the same numbers."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import hardtack as ht
from hardtack.commands.cli import main
from hardtack.results import read_results, read_verdicts, verdicts_path
from tiny_runs import files_below

DATA = Path(__file__).parents[1] / "data"


def copied(name, tmp_path, monkeypatch):
    shutil.copytree(DATA / name, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return json.loads((DATA / name / "expected.json").read_text(encoding="utf-8"))


def own_files(folder):
    """All files but the lock, which says nothing."""
    return sorted(files_below(Path(folder)) - {".results.lock"})


def as_in_v010(commands):
    """The same commands; tier=fast had no audit, which is part of it now."""
    return [[*words, *(["audit=0"] if "tier=fast" in words else [])] for words in commands]


# ---------------------------------------------------------------- finished


@pytest.fixture
def finished(tmp_path, monkeypatch):
    return copied("v010_finished", tmp_path, monkeypatch)


def test_the_model_gives_the_same_logits(finished):
    x, _, _ = ht.load_data("digits", "test", image_size=8).batch(range(8))
    assert np.allclose(ht.load_run("run")(x).tolist(), finished["logits"], atol=1e-5)


def test_every_measurement_is_recalled(finished):
    before = read_results("run")
    for words in as_in_v010(finished["commands"]):
        assert main(words) == 0, words
        assert own_files("run") == finished["files"], f"{words} was measured again"
    assert read_results("run") == before


def test_every_verdict_is_verified(finished, capsys):
    assert main(["verify", "run"]) == 0
    pattern = re.compile(r"^(\S+-[0-9a-f]{12}): verified: (\d+) of (\d+) .*", re.M)
    expected = pattern.findall("\n".join(finished["verify"]))
    assert len(expected) >= 6 and pattern.findall(capsys.readouterr().out) == expected


def test_it_is_reported(finished):
    assert main(["report", "run", "-o", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Robust accuracy" in page and "cauchy/tiny" in page


# ---------------------------------------------------------------- interrupted


def test_killed_measurements_go_on_and_end_with_the_same_numbers(tmp_path, monkeypatch):
    expected = copied("v010_interrupted", tmp_path, monkeypatch)
    for words in as_in_v010(expected["commands"]):
        assert main(words) == 0, words
    new = {f"evidence/{Path(file).stem}.json" for file in expected["files"] if file.startswith("verdicts/")}
    written = {file for file in own_files("run") if file.startswith("evidence/")}
    assert sorted(set(own_files("run")) - written) == sorted(expected["files"])
    assert written and written <= new, "only the evidence of evaluations that ended now is added"
    found = read_results("run")
    for id, made in expected["made"].items():
        numbers = [[r.metric, r.threat, r.value, r.low, r.high, r.n] for r in found if r.evaluation == id]
        assert [row[:2] for row in numbers] == [row[:2] for row in made["results"]]
        for row, wanted in zip(numbers, made["results"], strict=True):
            assert row[2:] == pytest.approx(wanted[2:], rel=1e-5)
        columns = read_verdicts(verdicts_path("run", id)) if made["verdicts"] else {}
        for name, values in made["verdicts"].items():
            if name.startswith(("index", "label", "clean_prediction", "clean_correct", "robust", "broken_by")):
                assert columns[name].tolist() == values, (id, name)
