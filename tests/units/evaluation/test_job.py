"""The settings of an evaluation are kept as the words that would repeat it."""

import pytest

from hardtack.analysis.job import analyze_words
from hardtack.evaluation.craft import craft
from hardtack.evaluation.job import evaluate_run
from hardtack.evaluation.verification import verify
from hardtack.report import write_card
from tiny_runs import write_data


def test_the_card_repeats_the_command_of_the_evaluation(tmp_path):
    settings = {
        "model": {"name": "vit_digits", "options": {"depth": 1}}, "data": "digits", "n": 8, "suite": "sweep",
        "threat": "linf:0.1", "attack": "fgsm", "sweep": ["0", "1"], "output": str(tmp_path / "run"),
    }  # fmt: skip
    (measured,) = evaluate_run(None, quiet=True, **settings)
    words = measured.results[-1].extra["words"]
    assert {"suite=sweep", "threat=linf:0.1", "attack=fgsm", 'sweep=["0", "1"]', "n=8"} <= set(words)
    text = write_card(tmp_path / "run").read_text()
    assert "hardtack evaluate model.name=vit_digits" in text and "attack=fgsm" in text
    assert "output=" not in text.split("hardtack evaluate")[1].split("\n")[0]


def test_the_words_name_the_defaults_too(tmp_path):
    (measured,) = evaluate_run(None, model="vit_digits", data="digits", n=4, output=str(tmp_path / "run"), quiet=True)
    assert {"suite=pgd", "threat=linf:8/255"} <= set(measured.results[-1].extra["words"])
    assert all("=" in word and not word.startswith("=") for word in measured.results[-1].extra["words"])


def test_more_images_than_there_are_is_said_with_the_number(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data.npz", test=12)
    settings = {"model": "vit_digits", "model.image_size": 8, "data": "npz:data.npz", "suite": "clean"}
    (measured,) = evaluate_run(quiet=True, n=1_000_000, **settings)
    told = "n=1,000,000, but the data has 12 images: all 12 are used"
    assert told in capsys.readouterr().err
    assert measured.results[0].n == 12
    assert {"level": "yellow", "code": "fewer_images", "message": told} in measured.flags
    (verified,) = verify("runs/vit_digits")
    assert verified.wrong == () and told not in capsys.readouterr().err
    (exact,) = evaluate_run(quiet=True, n=12, **settings)
    assert "fewer_images" not in {flag["code"] for flag in exact.flags} and "n=12" not in capsys.readouterr().err


@pytest.mark.parametrize("words, told", [(["n=500"], True), ([], False)])
def test_an_analysis_and_an_attack_say_it_too_if_the_user_named_the_number(tmp_path, monkeypatch, capsys, words, told):
    """Their usual numbers, 100 and 16, are not wishes of the user's."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data.npz", test=8)
    shared = ["model=vit_digits", "model.image_size=8", "data=npz:data.npz"]
    analyze_words([*shared, "perturbations", *words], quiet=True)
    assert ("n=500, but the data has 8 images" in capsys.readouterr().err) is told
    craft(None, iter([*shared, "attack.steps=1", *words]))
    assert ("n=500, but the data has 8 images" in capsys.readouterr().err) is told
