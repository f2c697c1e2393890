"""`hardtack describe NAME`: everything that has a name is described, and its example can be typed."""

import json
import shlex
from pathlib import Path

import pytest
from test_list_and_describe import said

from hardtack.base import registry
from hardtack.base.config import choose, parse_words
from hardtack.commands.descriptions import description_of
from hardtack.commands.recipe_files import find_recipe
from hardtack.commands.settings_table import Section, section_rows
from hardtack.commands.things import find_things, kinds
from hardtack.commands.words import split_target
from hardtack.data.datasets import parse_name
from hardtack.evaluation.job import read_job
from hardtack.studies.protocol import read_protocol
from hardtack.studies.study_files import is_study
from hardtack.training import read_recipe

ROOT = Path(__file__).parents[3]
FILE = '''"""Mine: a module about one attack."""
from dataclasses import dataclass
from hardtack.attacks import Attack
from hardtack.base.registry import attacks
from hardtack.threats import Threat

@attacks.register("mine", help="moves nothing", strength=3)
@dataclass(frozen=True, kw_only=True)
class Mine(Attack):
    """An attack that does nothing.

    strength   how little it does

    Paper: Nobody 2026, On Doing Nothing
    """

    threat: Threat
    strength: int = 1

    def search(self, model, x, y, **_): ...
'''


def check_example(line):
    """Read the words of an example as its command reads them; raises where it would."""
    program, *rest = shlex.split(line)
    if program == "torchrun":
        rest = rest[rest.index("hardtack") + 1 :]
    verb, *words = rest
    assert verb in registry.verbs, line
    words = [word for word in words if not word.startswith(("--", "ray", "slurm", "workers="))]
    target, settings = split_target(words) if verb not in ("analyze", "compare", "list", "describe") else (None, words)
    if verb in ("train", "plan") and target:
        read_recipe(find_recipe(target), settings)
    elif verb in ("evaluate", "attack"):
        values = parse_words(settings)
        if "data" in values:
            parse_name(values["data"])
        if "protocol" in values:
            read_protocol(values.pop("protocol"))
        values.pop("output", None)
        read_job(None, {**values, "model": "vit_digits", "data": "digits"})
    elif verb == "analyze":
        choose(registry.analyses, words[1])
    elif verb == "study":
        assert is_study(target)
    elif verb == "gauntlet":
        for key, names in parse_words(settings).items():
            assert names in {"mechanisms": registry.mechanisms, "evaluators": registry.evaluators}[key]


@pytest.mark.parametrize("noun", kinds())
def test_everything_of_a_kind_is_described(noun, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    things = [*kinds()[noun].list()]
    assert things
    if noun == "model":  # a sentence for every option; of ten models the rest
        registry.models.entries()
        options = {row.name: row for thing in things for row in section_rows(Section("model", thing.name))}
        assert len(options) > 60 and all(row.sentence and row.type != "any" for row in options.values())
    for thing in things if noun != "model" else things[::20]:
        about = description_of(thing)
        assert about.help or noun == "section", thing
        assert (ROOT / about.page).is_file(), f"{thing.kind} {thing.name}: there is no page {about.page}"
        assert not [row for row in about.settings if not row.sentence], thing.name
        if thing.name != "transfer":  # its example needs a second run
            for example in about.examples:
                check_example(example)
        assert thing in find_things(f"{noun}:{thing.name}")


def test_a_description_reads_well(capsys):
    code, out, _ = said(capsys, "describe", "fgsm")
    assert code == 0 and out.startswith("attack fgsm  one gradient step of length eps\n")
    assert "Explaining and Harnessing" in out and "Madry" not in out.split("example")[1] and "docs/attack.md" in out
    assert "arXiv:1706.06083" not in out  # that of pgd, which is the same class
    assert "\nattack.steps          1 " in out
    assert "hardtack evaluate runs/x suite=pgd attack=fgsm threat=linf:8/255" in out
    code, out, _ = said(capsys, "describe", "pgd")
    assert [line.split("  ")[0] for line in out.splitlines() if line.startswith(("attack pgd", "suite pgd"))] == [
        "attack pgd", "suite pgd",
    ]  # fmt: skip
    code, out, _ = said(capsys, "describe", "suite:pgd")
    assert code == 0 and out.startswith("suite pgd") and "attack pgd" not in out
    _, out, _ = said(capsys, "describe", "masked_gradients")
    assert "red" in out and "tier=max" in out
    _, out, _ = said(capsys, "describe", "architectures/table2")
    assert "cctt" in out and "hardtack study architectures/table2 scale=smoke" in out
    _, out, _ = said(capsys, "describe", "digits/trades")
    assert "objective.beta" in out and "two CPU cores" in out
    _, out, _ = said(capsys, "describe", "vit_digits")
    assert "patch_embed" in out and "model.options.depth" in out and "Dosovitskiy" in out
    _, out, _ = said(capsys, "describe", "train.ema")
    assert "number [0, 1) or null" in out
    _, out, _ = said(capsys, "describe", "trades", "--json")
    (about,) = json.loads(out)
    assert about["papers"][0].startswith("Zhang et al. 2019") and about["settings"][0]["name"] == "objective.attack"


def test_what_a_file_of_the_users_registers(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(registry.attacks, "_entries", dict(registry.attacks._entries))
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    code, out, err = said(capsys, "--import", str(file), "describe", "mine")
    assert code == 0, err
    assert "Mine: a module about one attack." in out and "On Doing Nothing" in out
    assert "hardtack --import mine.py evaluate runs/x suite=pgd attack=mine" in out and f"source   {file}" in out
    line = next(line for line in out.splitlines() if line.startswith("attack.strength"))
    assert line.split() == ["attack.strength", "3", "whole", "number", "how", "little", "it", "does"]


@pytest.mark.parametrize(
    "word, message",
    [
        ("trdaes", "did you mean 'trades'"),
        ("attack:pdg", "there is no attack 'pdg' (did you mean 'pgd'?)"),
        ("digits/trdes", "did you mean 'digits/trades'"),
        ("objective.betta", "did you mean 'objective.beta'"),
        ("qqqqq", "hardtack list KIND"),
    ],
)
def test_mistakes_are_named(capsys, word, message):
    code, out, err = said(capsys, "describe", word)
    assert code == 2 and not out and message in err and len(err.splitlines()) == 1
