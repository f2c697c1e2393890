"""A genuine run folder is verified; every forgery of it is named by `verify`, with exit code 1."""

import shutil

import numpy as np
import pytest

import hardtack as ht
from forgeries import FORGERIES, verdicts_of
from hardtack.commands.cli import main
from hardtack.results import read_results
from tiny_runs import settings, write_data

WORDS = [
    "suite=attacks", "threat=linf:0.1", "chunk_size=5", "runtime.device=cpu",
    "attacks=[{name: apgd_ce, steps: 5}, {name: square, steps: 20}]",
]  # fmt: skip


@pytest.fixture(scope="session")
def genuine(tmp_path_factory):
    """A trained run with one evaluation: some images are misclassified, some broken, some robust."""
    base = tmp_path_factory.mktemp("forgeries")
    file = write_data(base / "data.npz", test=16)
    arrays = dict(np.load(file))
    arrays["y_test"][:3] = 3 - arrays["y_test"][:3]  # labels that the model will not predict
    np.savez(file, **arrays)
    words = settings(base / "run", file, objective={"name": "standard"}, output=str(base / "run"))
    words["train"] |= {"epochs": 6, "ema": 0.0}
    ht.train(None, quiet=True, **words)
    assert main(["evaluate", str(base / "run"), *WORDS]) == 0
    (id,) = {result.evaluation for result in read_results(base / "run")}
    columns = verdicts_of(base / "run", id)
    broken = columns["clean_correct"] & ~columns["robust"]
    assert main(["verify", str(base / "run")]) == 0
    assert broken.sum() >= 2 and columns["robust"].sum() >= 2 and not columns["clean_correct"].all()
    return base / "run", id


@pytest.fixture
def run(genuine, tmp_path):
    return shutil.copytree(genuine[0], tmp_path / "run"), genuine[1]


def verify(folder, *words, capsys):
    capsys.readouterr()
    code = main(["verify", str(folder), *words])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_the_genuine_folder_is_verified(run, capsys):
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and f"{run[1]}: verified" in text and "wrong" not in text, text
    assert "not verifiable in any result: run, device, seconds, created, versions" in text


def test_the_genuine_folder_without_its_record_is_verified_as_far_as_it_goes(run, capsys):
    shutil.rmtree(run[0] / "evidence")
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and "not verifiable: there is no evidence record" in text, text


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named(run, capsys, name):
    edit, words = FORGERIES[name]
    edit(*run)
    code, text = verify(run[0], capsys=capsys)
    lines = "\n".join(line for line in text.splitlines() if "wrong:" in line)
    assert code == 1 and "NOT VERIFIED" in text, text
    assert all(word in lines for word in words), text


def test_there_are_many_of_them():
    assert len(FORGERIES) >= 50
