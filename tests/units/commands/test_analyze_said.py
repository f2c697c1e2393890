"""What `hardtack analyze` says about what it found, and the words that ask for it again."""

import pytest

from hardtack.analyzing import analyze_words

SMALL = ["model.options.depth=2", "model.options.width=16", "model.options.heads=2", "model.num_classes=10"]


@pytest.fixture
def analyze(tmp_path):
    def found(*words):
        shared = ["model=vit_digits", "data=digits", "n=4", f"output={tmp_path / 'run'}", *SMALL]
        return {one.analysis: one for one in analyze_words([*shared, *words], quiet=True)}

    return found


def test_of_shared_words_an_analysis_repeats_those_it_takes(analyze):
    found = analyze("sparsity", "attention")
    assert "n=4" in found["attention"].about["words"]
    assert not any(word.startswith("n=") for word in found["sparsity"].about["words"]), "alone it would refuse it"
