"""`hardtack list settings …`, as a person reads it and as a program does."""

import json

import pytest
from test_list_and_describe import said

from hardtack.commands.list import LISTS


def rows(capsys, *words):
    code, out, err = said(capsys, "list", "settings", *words, "--json")
    assert code == 0, err
    return {row["name"]: row for row in json.loads(out)}


def test_anything_that_has_settings_can_be_asked_for(capsys):
    beta = rows(capsys, "trades")["objective.beta"]
    assert [beta[key] for key in ("section", "type", "default", "allowed")] == [
        "objective trades",
        "number",
        "6",
        "≥ 0",
    ]
    assert "divergence" in beta["sentence"]
    assert rows(capsys, "attack:fgsm")["attack.steps"]["default"] == "1"  # the presets of the name, not of its class
    assert rows(capsys, "pgd").keys() >= {"attack.steps", "union", "threat"}  # the attack and the suite
    assert "attack.steps" not in rows(capsys, "suite:pgd")
    assert rows(capsys, "autoattack")["tier"]["allowed"] == "exact, verified, fast, max"
    assert "threat" not in rows(capsys, "clean")
    assert rows(capsys, "slurm").keys() >= {"slurm.hours", "workers"}
    assert {"sparsity.threshold"} <= rows(capsys, "sparsity").keys()
    evaluate = rows(capsys, "evaluate")
    assert {"threat", "checkpoint", "--on", "--dry-run", "patches.threat"} <= evaluate.keys()
    assert {row["section"] for row in rows(capsys, "train").values()} == {"train", "hardtack train"}
    assert {row["section"] for row in rows(capsys, "objectives").values()} >= {"objective trades", "objective rspc"}
    # the name of a setting, and any word of its row
    assert set(rows(capsys, "beta")) == {"objective.beta", "attack.beta"}
    assert [*rows(capsys, "train", "gradient", "norm")] == ["train.clip"]
    assert "train.ema" in rows(capsys, "average of the weights")
    assert rows(capsys, "objective.attack.steps")["attack.steps"]["type"] == "whole number"
    everything = rows(capsys)
    assert len(everything) > 250 and {"runtime.device", "sparsity.threshold", "ray.address"} <= everything.keys()


def test_a_pipe_gets_a_line_for_each_setting(capsys):
    code, out, _ = said(capsys, "list", "settings", "rspc")
    title, header, *lines = out.splitlines()
    assert code == 0 and title == "objective rspc" and header.split("  ")[0] == "setting"
    assert all(line.startswith("objective.") for line in lines)
    assert sum("objective.attack " in line for line in lines) <= 1
    assert any("number" in line and "≥ 0" in line for line in lines)


@pytest.mark.parametrize(
    "words, message",
    [
        (["tardes"], "did you mean 'trades'"),
        (["weigth_decay"], "did you mean 'weight_decay'"),
        (["qqqqqq"], "hardtack list settings shows all"),
        (["trades", "qqqqqq"], "hardtack list settings trades shows all"),
        (["torchrun"], "executor torchrun has no settings"),
    ],
)
def test_mistakes_are_named(capsys, words, message):
    code, out, err = said(capsys, "list", "settings", *words)
    assert code == 2 and not out and message in err and len(err.splitlines()) == 1


def test_other_lists_as_json(capsys):
    examples = {"metrics": "robust_accuracy", "charts": "bars", "corruptions": "fog", "models": "vit.arg"}
    for kind, name in examples.items():
        code, out, _ = said(capsys, "list", kind, "--json")
        assert code == 0 and name in [row["name"] for row in json.loads(out)]
    code, out, _ = said(capsys, "list", "--json")
    assert code == 0 and {row["kind"] for row in json.loads(out)} == {*LISTS, "models", "settings"}
    assert "untrained" in said(capsys, "list", "flags", "weights")[1]
