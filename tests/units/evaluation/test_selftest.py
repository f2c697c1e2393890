"""Planted adversarial examples: good attacks find them, bad ones and blind ones do not."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.evaluation.selftest import SelfTest, test_attacks
from tiny_runs import MODEL, images, labels, write_data

COUNT = 6
THREAT = "linf:8/255"


class Rounding(nn.Module):
    """A model that sees 17 levels of grey: its gradient is zero almost everywhere."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body((x * 16).round() / 16)


def convolutional(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
    )  # fmt: skip


MODELS = {
    "vit": lambda: ht.load_model(MODEL["name"], image_size=8, num_classes=10, seed=0, **MODEL["options"]),
    "cnn": lambda: ht.wrap(convolutional(), num_classes=10),
}


@dataclass(frozen=True, kw_only=True)
class Still:
    """Returns the images as they are."""

    threat: ht.Threat

    def __call__(self, model, x, y):
        return x


def check(model, count=COUNT, **settings):
    return test_attacks(model, (images(count), labels(count)), quiet=True, **{"threat": THREAT, **settings})


def said(found):
    return " ".join(str(found).split())


@pytest.mark.parametrize("threat", [THREAT, "l2:0.5", "l1:6"])
@pytest.mark.parametrize("model", MODELS)
def test_a_good_attack_finds_what_random_points_do_not(model, threat):
    found = check(MODELS[model](), threat=threat)
    assert found.passed and found.images == COUNT
    assert found.testable >= COUNT - 1 and found.found == found.testable and found.random_found == 0
    assert "PASSED" in str(found) and found.attacks == ("apgd", "square", *["fab_t"] * threat.startswith("l2"))


@pytest.mark.parametrize("attack", ["apgd_ce", "pgd"])
def test_an_attack_may_be_tested_by_itself(attack):
    assert check(MODELS["vit"](), suite="pgd", attack=attack).passed


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param({"name": "fgsm", "relative_step": 0.05}, id="a step too short"),
        pytest.param({"name": "pgd", "steps": 3, "relative_step": 0.02, "start": "clean"}, id="steps too short"),
        pytest.param(Still(threat=ht.Threat.parse(THREAT)), id="identity"),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_a_weak_attack_is_found_out(model, attack):
    found = check(MODELS[model](), suite="pgd", attack=attack)
    assert found.testable == COUNT and found.found == 0 and not found.passed
    assert "FAILED" in str(found) and "too high" in said(found)


def test_gradient_attacks_fail_on_dead_gradients_and_say_why():
    model = ht.wrap(Rounding(convolutional()), num_classes=10)
    blind = check(model, count=3, suite="pgd", attack="apgd_ce")
    assert not blind.passed and blind.blind == blind.testable == 3
    assert "gradient is zero" in said(blind) and "square" in said(blind)
    assert check(model, count=2).found == 2  # Square comes to the rescue where gradients tell nothing


def test_features_that_never_change_cannot_be_tested():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.arange(10.0).repeat(len(x), 1) + 0 * x.mean(dim=(1, 2, 3))[:, None]

    found = check(Constant(), count=2)
    assert found.testable == 0 and not found.passed and "UNINFORMATIVE" in str(found)


def test_random_luck_is_no_success():
    lucky = SelfTest(threat=THREAT, attacks=("pgd",), images=9, testable=9, found=9, random_found=7, blind=0, flat=0)
    assert not lucky.passed and "too easy" in said(lucky)


def test_the_model_is_left_alone_and_the_result_follows_from_the_seed():
    model = MODELS["cnn"]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    weak = {"suite": "pgd", "attack": {"name": "fgsm", "relative_step": 0.3}}
    first, again = check(model, **weak), check(model, **weak)
    assert first == again
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_logits_serve_where_there_is_no_last_layer():
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = convolutional()

        def forward(self, x):
            return 5 * nn.functional.normalize(self.body(x), dim=1)

    found = check(Cosine(), inner=20)
    assert found.testable > 0 and found.found == found.testable


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"suite": "clean"}, "has no attacks to test"),
        ({"union": [{"norm": "l2", "eps": "0.5"}]}, "one threat at a time"),
        ({"threat": None, "suite": "pgd", "attack": "patch_fool"}, "patches"),
    ],
)
def test_what_cannot_be_tested_is_refused(settings, says):
    with pytest.raises(UserError, match=says):
        check(MODELS["vit"](), **settings)


def test_the_command(tmp_path, capsys):
    data = write_data(tmp_path / "data.npz")
    words = [f"model={MODEL['name']}", "model.image_size=8", f"data=npz:{data}", "n=3", "runtime.device=cpu"]
    words += [f"model.options.{key}={value}" for key, value in MODEL["options"].items()]
    assert main(["selftest", *words]) == 0
    assert "PASSED: apgd, square at linf:8/255" in capsys.readouterr().out
    assert main(["selftest", *words, "attack=fgsm", "attack.relative_step=0.05"]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_every_flag_is_explained():
    root = Path(__file__).parents[3]
    codes = re.findall(r'flag\("(red|yellow)", "(\w+)"', (root / "src/hardtack/evaluation/sanity.py").read_text())
    page = (root / "docs/trust.md").read_text()
    assert len(codes) > 10
    assert [code for level, code in codes if f"| `{code}` | {level} |" not in page] == []
