"""The settings of an evaluation are kept as the words that would repeat it."""

from hardtack.evaluation.job import evaluate_run
from hardtack.report import write_card


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
