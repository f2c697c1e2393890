"""`hardtack attack` says what `evaluate` would say, and loses no images of an attack before."""

import numpy as np
import pytest

from hardtack.commands.cli import main
from tiny_runs import write_data

ATTACK = ["attack", "model=vit_digits", "model.options.patch_size=4", "data=npz:data.npz", "n=3"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data.npz")
    return tmp_path


def craft(capsys, *words):
    assert main([*ATTACK, *words]) == 0
    return capsys.readouterr().out


def test_random_weights_are_said(capsys):
    assert "RED FLAG untrained: the model's weights are random" in craft(capsys, "attack=fgsm", "threat=linf:0.1")


def test_another_attack_is_written_beside_and_the_same_one_in_its_place(capsys, home):
    first = craft(capsys, "attack=fgsm", "threat=linf:0.1")
    kept = (home / "adversarial/adversarial.npz").read_bytes()
    second = craft(capsys, "attack=patch_fool", "attack.steps=2")
    assert "images: adversarial/adversarial.npz" in first and "beside" not in first
    assert "images: adversarial/adversarial-2.npz" in second and "already holds other adversarial images" in second
    assert "linf:1, 1 patch of 4×4, chosen by attention" in second
    assert (home / "adversarial/adversarial.npz").read_bytes() == kept
    assert "patch_fool" in str(np.load(home / "adversarial/adversarial-2.npz")["protocol"])
    assert "images: adversarial/adversarial-2.npz" in craft(capsys, "attack=patch_fool", "attack.steps=2")
    assert "adversarial-3.png" in craft(capsys, "attack=patch_fool", "attack.steps=3")
    names = {path.name for path in (home / "adversarial").iterdir()}
    assert names == {f"adversarial{n}.{kind}" for n in ("", "-2", "-3") for kind in ("npz", "png")}


def test_a_file_that_is_not_ours_stays(capsys, home):
    (home / "adversarial").mkdir()
    (home / "adversarial/adversarial.npz").write_text("mine")
    assert "adversarial-2.npz" in craft(capsys, "attack=fgsm", "threat=linf:0.1")
    assert (home / "adversarial/adversarial.npz").read_text() == "mine"
