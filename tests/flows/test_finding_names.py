"""Somebody who knows other packages and reads what hardtack says arrives at a command that works."""

import json
import re

from hardtack.commands.cli import main


def run(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def corrected(words, err):
    """The words with what the message proposes in place of what it names."""
    option = re.search(r"there is no option --(\w+);.* did you mean ([\w.]+)=…", err)
    if option:
        at = words.index(f"--{option[1]}")
        return [*words[:at], f"{option[2]}={words[at + 1]}", *words[at + 2 :]]
    name = re.search(r"there is no \w+ '([\w-]+)'(?:; .* \(([^)]+)\)| \(did you mean '([^']+)'\?\))", err)
    if name:
        place = next(word for word in words if word.partition("=")[2] == name[1] or word == name[1])
        key, equals, _ = place.partition("=")
        now = name[2].split() if name[2] else [f"{key}{equals}{name[3]}" if equals else name[3]]
        return [new for word in words for new in (now if word == place else [word])]
    key, near = re.search(r"unknown key '([\w.]+)' \(did you mean '([^']+)'\?\)", err).groups()
    section = key.rpartition(".")[0]
    place = next(word for word in words if word.startswith(f"{key}="))
    lead = f"{section}." if section and "." not in near and "=" not in near else ""
    return [
        f"{lead}{near}{'' if '=' in near else '=' + place.partition('=')[2]}" if word == place else word
        for word in words
    ]


def test_who_follows_the_messages_arrives(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["eval", "model=vit_digits", "data=digits", "suite=LinfPGD", "n_examples=8", "eps=0.1",
             "attack.num_steps=2", "gpu=cpu", "--seed", "3"]  # fmt: skip
    seen = []
    for _ in range(9):
        code, out, err = run(capsys, *words)
        if code == 0:
            break
        assert code == 2 and len(err.splitlines()) == 1, err
        seen.append(err)
        words = corrected(words, err)
    assert sorted(words) == sorted([
        "evaluate", "model=vit_digits", "data=digits", "suite=pgd", "n=8", "threat=linf:8/255", "attack.steps=2",
        "runtime.device=cpu", "runtime.seed=3",
    ])  # fmt: skip
    assert len(seen) == 7 and "robust" in out.lower()
    assert all("hardtack list settings" in err for err in seen if "unknown key" in err)


def test_from_a_wish_to_a_setting(tmp_path, monkeypatch, capsys):
    """What is there? → which one? → what can be set? → what does this do?"""
    monkeypatch.chdir(tmp_path)
    kinds = run(capsys, "list")[1]
    assert "objectives" in kinds and "settings" in kinds
    assert "trades" in run(capsys, "list", "objectives")[1]
    described = run(capsys, "describe", "trades")[1]
    assert "Zhang et al. 2019" in described and "hardtack train digits/standard objective=trades" in described
    rows = json.loads(run(capsys, "list", "settings", "trades", "--json")[1])
    assert {row["name"] for row in rows} >= {"objective.beta", "objective.attack", "objective.warmup.epochs"}
    assert "weight of the divergence" in run(capsys, "describe", "objective.beta")[1]
    help = run(capsys, "train", "--help")[1]
    assert "objective.…" in help and "hardtack list settings train" in help
