"""Evaluations with another gradient: defences that plain attacks do not break and adaptive ones do; ids and records."""

import functools
import json

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.results import read_results
from tiny_runs import write_data

THREAT = "linf:0.1"


@pytest.fixture(scope="module")
def core():
    """A small network that reads digits, undefended: true robust accuracy about a quarter."""
    data = ht.load_data("digits", "train")
    x, y, _ = data.batch(torch.arange(600))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
        optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
        for _ in range(150):
            rows = torch.randint(0, len(x), (100,))
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimiser.step()
    return network.eval()


@pytest.fixture(scope="module")
def images():
    x, y, _ = ht.load_data("digits", "test").batch(torch.arange(60))
    return x, y


class Defence(nn.Module):
    def __init__(self, core):
        super().__init__()
        self.core = core


class Ripple(Defence):
    def forward(self, x):
        return self.core(x + 0.01 * torch.sin(400 * x))


class Quantised(Defence):
    def forward(self, x):
        return self.core((x * 8).round() / 8)


class Scrambled(Defence):
    """Correct values, and a gradient whose signs are random."""

    def forward(self, x):
        signs = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0)).sign()
        return self.core(x.detach() + signs * (x - x.detach()))


class RoundedLogits(Defence):
    def forward(self, x):
        return self.core(x).round()


class Noisy(Defence):
    def forward(self, x):
        return self.core(x + 0.25 * torch.randn_like(x))


def measure(model, images, suite="pgd", **settings):
    return ht.evaluate(model.eval(), images, suite=suite, threat=THREAT, quiet=True, **settings)


BPDA = {"bpda": lambda model: model.core}
CASES = [
    (Ripple, {"smooth": 0.05}),
    (Ripple, BPDA),
    (Quantised, BPDA),
    (Quantised, {"nes": {"sigma": 0.1, "samples": 128}}),
    (Scrambled, BPDA),
    (Scrambled, {"nes": {"sigma": 0.1, "samples": 128}}),
    (RoundedLogits, {"nes": {"sigma": 0.1, "samples": 128}}),
    (RoundedLogits, BPDA),
]


@pytest.fixture(scope="module")
def measured_plainly(core, images):
    """The defences as plain PGD sees them, each measured once."""
    return functools.cache(lambda defence: measure(defence(core), images, attack={"steps": 10}))


@pytest.mark.parametrize("defence, option", CASES, ids=[f"{kind.__name__} {list(option)}" for kind, option in CASES])
def test_the_option_breaks_a_defence_that_plain_pgd_does_not(core, images, measured_plainly, defence, option):
    plain = measured_plainly(defence)
    adaptive = measure(defence(core), images, attack={"steps": 10, **option})
    assert plain.robust_accuracy > 0.8
    assert adaptive.robust_accuracy < plain.robust_accuracy - 0.25
    broken = ~torch.as_tensor(adaptive.robust)
    assert adaptive.id != plain.id and broken.sum() > 15
    assert "gradients" in adaptive.results[-1].attack_settings
    assert "gradients" not in plain.results[-1].attack_settings


def test_a_model_with_noise_is_broken_by_averaging_and_judged_by_as_many_votes(core, images):
    few = tuple(part[:30] for part in images)
    torch.manual_seed(0)
    plain = measure(Noisy(core), few, attack={"steps": 5})
    averaged = measure(Noisy(core), few, attack={"steps": 5, "eot": 10})
    assert [flag["code"] for flag in plain.flags if flag["level"] == "red"] == ["random_outputs"]
    assert "random_outputs" not in [flag["code"] for flag in averaged.flags]
    assert averaged.clean_accuracy >= plain.clean_accuracy
    assert averaged.robust_accuracy < plain.robust_accuracy + 0.1


@pytest.mark.parametrize("suite, settings", [
    ("attacks", {"attacks": ["apgd_ce", {"name": "square", "steps": 50}]}),
    ("sweep", {"sweep": ["1/2", "1"]}),
])  # fmt: skip
def test_lists_and_sweeps_take_the_same_settings(core, images, suite, settings):
    few = tuple(part[:20] for part in images)
    model = Scrambled(core)
    plain = measure(model, few, suite, **settings)
    adaptive = measure(model, few, suite, **settings, attack=BPDA)
    assert adaptive.robust_accuracy < plain.robust_accuracy and adaptive.id != plain.id
    assert "bpda=" in adaptive.results[-1].attack


def test_autoattack_takes_the_same_settings(core, images):
    """At this radius every image of the core can be broken, so that nothing is left for an audit."""
    few = tuple(part[:12] for part in images)
    wide = {"suite": "autoattack", "tier": "fast", "threat": "linf:0.3", "quiet": True}
    adaptive = ht.evaluate(Scrambled(core).eval(), few, attack=BPDA, **wide)
    assert adaptive.robust_accuracy == 0.0
    broken_by = {by.split()[0] for by in adaptive.verdicts["broken_by"] if by is not None}
    assert broken_by == {"apgd"}, "by gradients, and not by Square"
    settings = adaptive.results[-1].attack_settings
    assert settings["tier"] == "fast" and settings["gradients"] == "bpda=<lambda>"
    named = {stage.get("name"): "gradients" in stage for stage in adaptive.results[-1].extra["stages"]}
    assert named["apgd"] and not named["square"]


def test_settings_that_do_not_fit_a_suite_are_refused(core, images):
    with pytest.raises(UserError, match=r"'attack.steps' is a setting of suite=pgd; suite=autoattack takes attack.smo"):
        measure(core, images, "autoattack", attack={"steps": 3})
    with pytest.raises(UserError, match="square does not use"):
        measure(core, images, "attacks", attacks=["square"], attack={"smooth": 0.1})
    with pytest.raises(UserError, match="suite=attacks has its own attacks; attack=fgsm"):
        measure(core, images, "attacks", attacks=["square"], attack="fgsm")


def test_the_python_attack_takes_the_same_settings(core, images):
    x, y = (part[:30] for part in images)
    model = Quantised(core).eval()
    plain = ht.attack(model, x, y, "pgd", threat=THREAT, steps=10)
    found = ht.attack(model, x, y, "pgd", threat=THREAT, steps=10, bpda=core)
    with torch.no_grad():
        assert (model(found).argmax(dim=1) == y).sum() < (model(plain).argmax(dim=1) == y).sum() - 5
    assert (found - x).abs().max() <= 0.1 + 1e-6
    with pytest.raises(UserError, match="square does not use"):
        ht.attack(model, x, y, "square", threat=THREAT, smooth=0.1)
    with pytest.raises(UserError, match="the surrogate must return logits of shape"):
        ht.attack(model, x, y, "pgd", threat=THREAT, bpda=lambda model: model.core[:-1])


# ---------------------------------------------------------------- the command line

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 4))
        centre = torch.tensor([0.125, 0.3, 0.48, 0.65])
        self.core[2].weight.data = 20 * 2 * centre[:, None] * torch.ones(4, 48) / 48
        self.core[2].bias.data = -20 * centre**2

    def forward(self, x):
        return self.core((x * 32).round() / 32)

def surrogate(model):
    return model.body.core

def loss(logits, y):
    return nn.functional.cross_entropy(2 * logits, y, reduction="none")
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_data(tmp_path / "data.npz")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


WORDS = ["model=mine.py:Net", "model.image_size=8", "data=npz:data.npz", "threat=linf:0.15", "output=run"]


def test_the_commands_take_surrogates_losses_and_other_runs(home, capsys):
    assert main(["evaluate", *WORDS, "suite=pgd"]) == 0
    for word in ("attack.bpda=mine.py:surrogate", "attack.loss=mine.py:loss", "attack.smooth=0.1", "attack.nes=0.1"):
        assert main(["evaluate", *WORDS, "suite=pgd", word]) == 0, capsys.readouterr().err
    results = [one for one in read_results(home / "run") if one.metric == "robust_accuracy"]
    assert len({one.evaluation for one in results}) == 5
    assert any(one.attack_settings.get("gradients", {}).get("bpda") == "mine.py:surrogate" for one in results)
    assert all("type" not in json.dumps(one.attack_settings) for one in results)
    surrogate = next(one for one in results if "bpda" in (one.attack or ""))
    assert surrogate.value < results[0].value, "the rounded model has no gradient of its own"
    assert main(["attack", *WORDS, "attack.bpda=mine.py:surrogate", "n=4", "output=adv"]) == 0
    assert main(["plan", *WORDS[:-1], "suite=pgd", "attack.bpda=mine.py:surrogate"]) == 0
    capsys.readouterr()
    # `verify` runs the user's code only if it is typed, and typed code belongs to the evaluations that name it
    words = ["verify", "run", "model=mine.py:Net", "model.image_size=8", "data=npz:data.npz"]
    assert main(words) == 2
    assert "type it yourself: attack.bpda=mine.py:surrogate" in capsys.readouterr().err
    assert main([*words, "attack.bpda=mine.py:surrogate", "attack.loss=mine.py:loss"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    assert main(["evaluate", *WORDS, "suite=pgd", "attack.bpda=mine.py:surogate"]) == 2
    assert "mine.py has no function 'surogate' (did you mean 'surrogate'?)" in capsys.readouterr().err


def test_an_id_without_these_settings_is_what_it_was(home):
    """The id of version 0.1.0 for this model, these images and these settings."""
    x, y = torch.zeros(2, 3, 8, 8) + 0.5, torch.zeros(2, dtype=torch.int64)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    for suite, settings, known in (
        ("pgd", {}, "pgd-c834207b883e"),
        ("attacks", {"attacks": ["apgd_ce"]}, "attacks-2152a29195cc"),
    ):
        plain = ht.evaluate(model, (x, y), suite=suite, threat="linf:0.1", quiet=True, **settings)
        smooth = ht.evaluate(
            model, (x, y), suite=suite, threat="linf:0.1", quiet=True, **settings, attack={"smooth": 0.1}
        )
        assert plain.id == known and smooth.id != known
