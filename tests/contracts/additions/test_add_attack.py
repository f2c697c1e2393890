"""An attack of the user's own is one file: named with `--import`, it runs in every suite that attacks."""

import json

import pytest
import torch

from hardtack.attacks import as_attack
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.commands.cli import main
from hardtack.results import read_verdicts

SOURCE = '''"""Make every pixel darker, by less and less until the image fools the model."""

from dataclasses import dataclass

from hardtack.attacks import preserve_state
from hardtack.base.registry import attacks
from hardtack.threats import Threat


@attacks.register("darker", help="every pixel darker by the whole radius")
@dataclass(frozen=True, kw_only=True)
class Darker:
    threat: Threat
    share: float = 1.0

    def __call__(self, model, x, y):
        with preserve_state(model):
            return self.threat.project(x - self.share * self.threat.radius, x)
'''


@pytest.fixture
def plugin(tmp_path):
    """The user's file; its attack is taken out of the registry afterwards."""
    file = tmp_path / "my_attack.py"
    file.write_text(SOURCE)
    yield str(file)
    attacks._entries.pop("darker", None)


def test_the_attack_runs_from_the_command_line_and_its_images_are_verified(plugin, tmp_path, capsys):
    words = ["model=vit_digits", "data=digits", "n=6", "runtime.device=cpu", f"output={tmp_path / 'out'}"]
    attack = ["suite=pgd", "attack=darker", "threat=linf:0.9"]
    assert main(["--import", plugin, "evaluate", *words, *attack]) == 0, capsys.readouterr()
    (results,) = (tmp_path / "out").rglob("results.jsonl")
    last = json.loads(results.read_text().splitlines()[-1])
    assert last["metric"] == "robust_accuracy" and last["attack"].startswith("darker")
    verdicts = read_verdicts(results.parent / last["verdicts"])
    broken = verdicts["clean_correct"] & ~verdicts["robust@linf:0.9"]
    assert (verdicts["broken_by"][broken] == "darker linf:0.9").all()
    assert (verdicts["forwards"] == 0).all(), "the attack never called the model"
    assert main(["--import", plugin, "list", "attacks"]) == 0 and "darker" in capsys.readouterr().out


def test_any_callable_has_the_defaults_of_the_contract():
    attack = as_attack(lambda model, x, y: x)
    x = torch.rand(2, 3, 4, 4)
    assert not attack.pooled and attack.limits == "" and attack.allows(x, x).all() and attack.settings() == {}
    assert attack.settle(torch.nn.Identity(), x) == (attack, "") and attack.shortened(3) is None
    assert as_attack(attack) is attack


def test_what_is_no_attack_is_refused():
    class Limited:
        def __call__(self, model, x, y):
            return x

        def allows(self, x_adv, x, model):
            return x[:, 0, 0, 0] > 0

    with pytest.raises(UserError, match=r"Limited defines allows.*hardtack\.attacks\.Attack"):
        as_attack(Limited())
    with pytest.raises(UserError, match="cannot be called"):
        as_attack(3)
