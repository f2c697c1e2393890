"""A reader of the user's is one file: named with `--import`, `data=NAME:PATH` trains, evaluates and is listed."""

import numpy as np
import pytest

from hardtack.base.registry import datasets
from hardtack.commands.cli import main

SOURCE = '''
import numpy as np
import torch

from hardtack.base.registry import datasets
from hardtack.data.source import Stored


@datasets.register("rows_test", path="PATH", help="rows_test:PATH: a text file with a label and 192 values in each row")
def read_rows(config, path):
    """(config, path) to the stored splits, each a function that opens it."""

    def open_split():
        rows = np.loadtxt(path, dtype=np.float32)
        images = torch.from_numpy(rows[:, 1:]).reshape(-1, 3, 8, 8)
        return Stored(images, torch.from_numpy(rows[:, 0]).long(), classes=("dark", "bright"))

    return {"whole": open_split}
'''


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "my_reader.py"
    file.write_text(SOURCE)
    labels = np.arange(60) % 2
    values = np.random.default_rng(0).random((60, 192)) * 0.4 + 0.5 * labels[:, None]
    np.savetxt(tmp_path / "rows.txt", np.column_stack([labels, values]))
    yield str(file)
    datasets._entries.pop("rows_test", None)


def test_it_trains_and_evaluates_like_a_built_in_one(plugin, tmp_path, capsys):
    run, data = tmp_path / "run", f"rows_test:{tmp_path / 'rows.txt'}"
    words = [f"data={data}", "model=vit_digits", "model.options.patch_size=4", "train.epochs=1", "train.batch_size=8"]
    assert main(["train", *words, f"output={run}", "--import", plugin]) == 0
    assert main(["evaluate", str(run), "suite=clean", "--import", plugin]) == 0
    assert "n=12" in capsys.readouterr().out, "the share data.test of a set without splits"


def test_it_is_listed(plugin, capsys):
    assert main(["list", "datasets", "--import", plugin]) == 0
    assert "rows_test" in capsys.readouterr().out


def test_without_its_file_there_is_no_such_data_set(tmp_path, capsys):
    words = ["data=rows_test:x.txt", "model=vit_digits", "suite=clean", f"output={tmp_path / 'run'}"]
    assert main(["evaluate", *words]) == 2
    assert "rows_test" in capsys.readouterr().err
