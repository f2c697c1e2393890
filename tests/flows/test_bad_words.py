"""Words that no user should have typed end in one line that says what is wrong, never as a fault of hardtack."""

import pytest
import yaml

from hardtack.commands.cli import main
from tiny_runs import settings, write_data

NUMBERS = ["nan", "inf", "-1", "1e308", "abc", "null", "[]", "{}", "99999999999999999999999"]
TRAINING = ["optimiser.lr", "train.clip", "train.batch_size", "augment.crop_padding", "runtime.seed", "data.image_size"]
EVALUATION = [
    "threat",
    "attack.steps",
    "batch_size",
    "n",
    "runtime.seed",
    "data",
    "model",
    "checkpoint",
    "split",
    "suite",
]
OTHERS = [
    ["attack", "run", "output=5", "attack=zzz"],
    ["attack", "run", "data=5"],
    ["analyze", "run", "sparsity", "data=[]"],
    ["plan", "run", "data=null"],
    ["verify", "run", "data=5"],
    ["evaluate", "run", "=1"],
    ["evaluate", "run", "threat=linf:1/0"],
    ["evaluate", "run", "threat=linf:nan"],
    ["evaluate", "model=vit_digits", "data=digits", "n=2", "model.options.depth=abc"],
    ["evaluate", "model=vit_digits", "data=digits", "n=2", "model.options.heads=0"],
    ["evaluate", "model=vit_digits", "data=digits", "n=2", "model.std=[0,0,0]"],
    ["evaluate", "model=vit_digits", "data=npz:tiny.yaml"],
    ["evaluate", "model=vit_digits", "data=wds/nowhere"],
    ["study", "cauchy/tabel1"],
    ["study", "nowhere.yaml"],
    ["study", "tiny.yaml"],
    *(
        ["study", "cauchy/table1", word]
        for word in (
            "seeds=abc", "seeds=0", "n=0", "n=abc", "rows=", "rows=a,,b", "rows=vit_t9", "scale=tiny", "scale=",
            "train.epochs=abc", "train.epoch=2", "folders=5", "folders.cifar_c=nowhere", "frost=nowhere", "output=5",
            "data=5", "runtime=5", "runtime.device=xpu9", "seed=3",
        )
    ),
    ["study", "xcit/table1", "scale=paper"],  # its ImageNet-100 is nowhere
    ["study", "cauchy/table1", "--status", "scale=tiny"],
    ["plan", "study=nowhere"],
    ["plan", "study=cauchy/table1", "scale=tiny"],
    ["train", "cauchy/table1:vit_t9"],
    ["train", "cauchy/table1:vit_t1/foo"],
    ["train", "cauchy/table1:vit_t1", "scale=tiny"],
    ["train", "cauchy/table1:vit_t1", "seed=abc", "scale=smoke"],
]  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data.npz", train=8, test=4)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings(tmp_path / "out", tmp_path / "data.npz")))
    return tmp_path


def check(words, capsys):
    code = main(words)
    told = capsys.readouterr().err
    assert code == 2 and told.startswith("hardtack: ") and told.count("\n") == 1, (words, code, told)
    assert "fault of hardtack" not in told


@pytest.mark.parametrize("key", TRAINING)
def test_training(home, capsys, key):
    for value in ["nan", "inf", "-1", "abc", "[1, [2]]", "{}", "99999999999999999999999"]:
        check(["train", "tiny.yaml", f"{key}={value}"], capsys)
    assert not (home / "out").exists(), "nothing was started"


@pytest.mark.parametrize("key", EVALUATION)
def test_evaluation_of_a_run_that_is_not_there(home, capsys, key):
    for value in NUMBERS:
        check(["evaluate", "nowhere", f"{key}={value}"], capsys)


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_other_words(home, capsys, words):
    check(words, capsys)
