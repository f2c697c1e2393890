"""Attacks of another package on the command line: evaluated, repeated, verified, planned, and bad words."""

import json

import pytest

import hardtack as ht
from hardtack.commands.cli import main
from tiny_runs import tiny_recipe, write_data

pytest.importorskip("foolbox")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    ht.train(tiny_recipe(folder / "run", write_data(folder / "data.npz", test=24)), quiet=True)
    return folder / "run", f"data=npz:{folder / 'data.npz'}"


def hardtack(capsys, *words):
    code = main([*map(str, words)])
    out = capsys.readouterr()
    return code, out.out + out.err


def test_a_result_is_measured_recalled_verified_and_planned(run, capsys):
    folder, data = run
    words = [folder, data, "threat=linf:0.2", "runtime.device=cpu"]
    pgd = [*words, "suite=pgd", "attack=foolbox:LinfPGD", "attack.steps=3"]
    code, text = hardtack(capsys, "evaluate", *pgd)
    assert code == 0 and "foolbox:LinfPGD steps=3" in text
    assert hardtack(capsys, "evaluate", *pgd)[1].splitlines()[-1] == text.splitlines()[-1]
    last = json.loads((folder / "results.jsonl").read_text().splitlines()[-1])
    assert last["attack_settings"]["package"].startswith("foolbox ")
    several = 'attacks=["foolbox:L2DeepFoolAttack",{"name":"fgsm"},"foolbox:MIFGSM"]'
    code, text = hardtack(capsys, "evaluate", *words, "suite=attacks", several)
    assert code == 0 and "foolbox:L2DeepFoolAttack+fgsm+foolbox:MIFGSM" in text
    code, text = hardtack(capsys, "verify", folder, data, "sample=3")
    assert code == 0 and "NOT VERIFIED" not in text
    assert text.count("draws random numbers for whole batches") == 2 and "foolbox:LinfPGD draws" in text
    code, text = hardtack(capsys, "plan", *pgd)
    assert code == 0 and "1 × 3 steps" in text
    code, text = hardtack(capsys, "attack", *words, "attack=foolbox:FGSM", "n=4", f"output={folder / 'adv'}")
    assert code == 0 and (folder / "adv" / "adversarial.npz").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (["attack=foolbox:LinfPGG"], "did you mean 'LinfPGD'?"),
        (["attack=foobox:LinfPGD"], "did you mean 'foolbox'?"),
        (["attack=foolbox:LinfPGD", "attack.stepz=3"], "unknown key 'attack.stepz' (did you mean 'attack.steps'?)"),
        (["attack=foolbox:L2PGD"], "foolbox:L2PGD searches in l2, and the threat is linf:0.2"),
        (["attack=os:system"], "there is no package of attacks 'os'"),
    ],
)
def test_bad_words(run, capsys, words, message):
    folder, data = run
    code, text = hardtack(capsys, "evaluate", folder, data, "suite=pgd", "threat=linf:0.2", *words)
    assert code == 2 and message in text and "Traceback" not in text


def test_the_list_of_attacks_names_the_packages(capsys):
    code, text = hardtack(capsys, "list", "attacks")
    assert code == 0 and "foolbox:NAME" in text and "autoattack:NAME" in text
