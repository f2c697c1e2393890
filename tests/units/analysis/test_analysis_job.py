"""What `hardtack analyze` prints about its findings, and the settings that are recorded with them."""

import re

import pytest

from hardtack.analysis.job import analyze_words

SMALL = ["model.options.depth=2", "model.options.width=16", "model.options.heads=2", "model.num_classes=10"]


@pytest.fixture
def analyze(tmp_path):
    def found(*words):
        shared = ["model=vit_digits", "data=digits", "n=4", f"output={tmp_path / 'run'}", *SMALL]
        return {one.analysis: one for one in analyze_words([*shared, *words], quiet=True)}

    return found


def test_an_analysis_records_the_shared_settings_that_it_uses(analyze):
    found = analyze("sparsity", "attention")
    assert "n=4" in found["attention"].about["words"]
    assert not any(word.startswith("n=") for word in found["sparsity"].about["words"]), "alone it would refuse it"


def test_the_first_line_has_the_settings_that_were_asked_for(analyze):
    found = analyze("attention", "visions", "attention.disturb=noise", "attention.shown=1", "visions.steps=1")
    heads = {name: str(one).split("\n")[0] for name, one in found.items()}
    assert heads["attention"].startswith("attention on digits/test: disturb=noise shown=1  (attention-")
    assert heads["visions"].startswith("visions on digits/test: steps=1  (visions-")


def test_shares_are_printed_as_percentages(analyze):
    said = str(analyze("visions", "visions.steps=1")["visions"])
    for share in ("confidence", "success"):
        assert re.search(rf"vision {share} l2:15 +\d+\.\d\d%  \[\d+\.\d\d%, \d+\.\d\d%\]  n=4", said)
    assert "%" not in str(analyze("attention")["attention"])
