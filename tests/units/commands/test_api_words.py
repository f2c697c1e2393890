"""What an evaluation was asked for is kept as words that ask for it again."""

from hardtack.evaluation.job import evaluate_run
from hardtack.report import write_card


def test_the_card_repeats_the_evaluation_as_it_was_asked_for(tmp_path):
    asked = {
        "model": {"name": "vit_digits", "options": {"depth": 1}}, "data": "digits", "n": 8, "suite": "sweep",
        "threat": "linf:0.1", "attack": "fgsm", "sweep": ["0", "1"], "output": str(tmp_path / "run"),
    }  # fmt: skip
    (measured,) = evaluate_run(None, quiet=True, **asked)
    words = measured.results[-1].extra["words"]
    assert {"suite=sweep", "threat=linf:0.1", "attack=fgsm", 'sweep=["0", "1"]', "n=8"} <= set(words)
    text = write_card(tmp_path / "run").read_text()
    assert "hardtack evaluate model.name=vit_digits" in text and "attack=fgsm" in text
    assert "output=" not in text.split("hardtack evaluate")[1].split("\n")[0]


def test_an_evaluation_asked_for_without_a_word_says_what_was_the_default(tmp_path):
    (measured,) = evaluate_run(None, model="vit_digits", data="digits", n=4, output=str(tmp_path / "run"), quiet=True)
    assert {"suite=pgd", "threat=linf:8/255"} <= set(measured.results[-1].extra["words"])
    assert all("=" in word and not word.startswith("=") for word in measured.results[-1].extra["words"])
