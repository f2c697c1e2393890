"""An architecture of the user's is one file: named with `--import`, it is listed, described, trained and evaluated."""

import pytest

from hardtack.base.registry import models
from hardtack.commands.cli import main

SOURCE = """
from torch import nn

from hardtack.base.registry import models


@models.register("two_layers_test", help="two layers for small images", width=16)
class TwoLayers(nn.Module):
    def __init__(self, *, num_classes=10, image_size=32, width=32):
        super().__init__()
        self.image_size, self.num_classes = image_size, num_classes
        self.hidden = nn.Linear(3 * image_size**2, width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.hidden(x.flatten(1)).relu())
"""
TINY = ["data=digits", "data.limit=64", "train.epochs=1", "train.batch_size=16", "validation.limit=8"]


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "my_architecture.py"
    file.write_text(SOURCE)
    yield str(file)
    models._entries.pop("two_layers_test", None)


def test_it_is_listed_and_described(plugin, capsys):
    assert main(["list", "models", "two_layers_test", "--import", plugin]) == 0
    assert "two_layers_test" in capsys.readouterr().out
    assert main(["describe", "two_layers_test", "--import", plugin]) == 0
    assert "hidden" in capsys.readouterr().out


def test_it_trains_and_its_run_is_evaluated(plugin, tmp_path, capsys):
    run = tmp_path / "run"
    words = ["model=two_layers_test", "model.options.width=8", f"output={run}", *TINY]
    assert main(["train", *words, "--import", plugin]) == 0
    assert main(["evaluate", str(run), "suite=pgd", "threat=linf:2/255", "n=8", "--import", plugin]) == 0
    assert "robust accuracy" in capsys.readouterr().out


def test_without_its_file_there_is_no_such_model(tmp_path, capsys):
    assert main(["train", "model=two_layers_test", f"output={tmp_path / 'run'}", *TINY]) == 2
    assert "two_layers_test" in capsys.readouterr().err
