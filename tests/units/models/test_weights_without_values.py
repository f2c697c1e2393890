"""Models on the meta device have shapes and no values: every entrance says so."""

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from tiny_runs import Linear, images, labels


@pytest.fixture
def model():
    with torch.device("meta"):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda model: ht.evaluate(model, (images(), labels()), suite="clean", quiet=True),
        lambda model: ht.attack(model, images(), labels(), "pgd", threat="linf:0.1"),
        lambda model: ht.analyze(model, (images(), labels()), "sparsity", quiet=True),
        lambda model: ht.evaluate(ht.wrap(model, num_classes=4), (images(), labels()), suite="clean", quiet=True),
    ],
)
def test_weights_without_values_are_refused(model, call):
    with pytest.raises(UserError, match=r"have no values: .*1\.weight and 1 more on the device 'meta'"):
        call(model)


def test_a_users_file_that_builds_such_a_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch\ndef build(num_classes=4, image_size=8):\n    with torch.device('meta'):\n"
        "        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, num_classes))\n"
    )
    with pytest.raises(UserError, match="have no values"):
        ht.load_model("mine.py:build", num_classes=4, image_size=8)


def test_values_are_enough():
    assert ht.evaluate(Linear(), (images(), labels()), suite="clean", quiet=True).clean_accuracy >= 0
