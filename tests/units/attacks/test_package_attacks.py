"""Attacks of other packages by name: which can be named, their settings, and that our verification decides.

foolbox is in the extra `dev`; torchattacks and the toolbox stand here as small modules with their interfaces. The
packages themselves: tests/oracles/test_packages_of_attacks.py.
"""

import importlib.metadata
import pickle
import random
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks.packages import package_attack
from hardtack.attacks.packages.package_attack import read_signature
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks, packages
from hardtack.base.trust import stored_settings
from hardtack.threats import Threat

foolbox = pytest.importorskip("foolbox")
THREAT = "linf:0.03"


@pytest.fixture(autouse=True)
def forget():
    """Entries that were made from the small modules of a test."""
    yield
    attacks._elsewhere.clear()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(48, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
            )

    def forward(self, x):
        return self.body(x)


# ---------------------------------------------------------------- foolbox


def test_one_step_is_ours_to_the_rounding():
    net = Network().eval()
    x = 0.2 + 0.6 * torch.rand(16, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    theirs = ht.attack(net, x, y, "foolbox:FGSM", threat=THREAT)
    ours = ht.attack(net, x, y, "fgsm", threat=THREAT)
    assert torch.allclose(theirs, ours, atol=1e-6)


def test_the_images_are_those_of_the_package_itself():
    net = Network().eval()
    x = torch.rand(16, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    direct = foolbox.attacks.LinfPGD(steps=7, random_start=False)(
        foolbox.PyTorchModel(net, (0, 1), device="cpu"), x, y, epsilons=0.05
    )[1]
    found = ht.attack(net, x, y, "foolbox:LinfPGD", threat="linf:0.05", steps=7, random_start=False)
    assert torch.equal(found, direct)


def test_an_evaluation_names_the_attack_its_settings_and_the_version_of_the_package():
    net = Network().eval()
    x = torch.rand(12, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    measured = ht.evaluate(net, (x, y), attack={"name": "foolbox:LinfPGD", "steps": 5}, threat="linf:0.3", quiet=True)
    settings = measured.results[-1].attack_settings
    assert measured.robust_accuracy < 1 and measured.results[-1].attack == "foolbox:LinfPGD steps=5"
    assert settings["package"] == f"foolbox {importlib.metadata.version('foolbox')}" and settings["steps"] == 5


def test_a_smallest_perturbation_counts_only_inside_the_ball():
    net = Network().eval()
    x = torch.rand(12, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    attack = {"name": "foolbox:L2DeepFoolAttack"}
    wide, narrow = (
        ht.evaluate(net, (x, y), attack=attack, threat=threat, quiet=True) for threat in ("l2:9", "l2:0.001")
    )
    assert wide.robust_accuracy == 0 and narrow.robust_accuracy == 1
    # in another norm the package returns the whole perturbation, which may be too large
    assert torch.equal(ht.attack(net, x, y, attack, threat="linf:0.0001"), x)
    some = ht.attack(net, x, y, attack, threat="linf:0.03")
    assert Threat.parse("linf:0.03").contains(some, x).all() and 0 < (net(some).argmax(dim=1) != y).sum() < 12
    assert ht.evaluate(net, (x, y), attack=attack, threat="linf:0.0001", quiet=True).robust_accuracy == 1


def test_everything_random_is_left_as_it_was_and_repeats_with_the_seed():
    net = Network().train()
    x = torch.rand(12, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    one, same, other = (
        ht.attack(net, x, y, "foolbox:LinfPGD", threat=THREAT, steps=1, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[2]
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert net.training and all(weight.requires_grad and weight.grad is None for weight in net.parameters())
    fresh = [ht.attack(net, x, y, "foolbox:LinfPGD", threat=THREAT, steps=1) for _ in range(2)]
    assert not torch.equal(*fresh), "a loop would train on frozen noise"


def test_a_gradient_source_takes_the_place_of_the_models_gradient():
    class Rounding(Network):
        def forward(self, x):
            return self.body((8 * x).round() / 8)

    net = Rounding().eval()
    x = torch.rand(16, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    plainly, through = (
        ht.attack(net, x, y, "foolbox:LinfPGD", threat="linf:0.3", details=True, seed=0, random_start=False, **more)
        for more in ({}, {"bpda": lambda model: model.body})
    )
    assert plainly.success.sum() == 0 < through.success.sum()


def test_an_attack_can_be_sent_to_another_process():
    made = attacks.get("foolbox:LinfPGD").make(threat=ht.Threat.parse(THREAT), steps=3)
    again = pickle.loads(pickle.dumps(made))
    assert plain(again) == plain(made) and plain(made)["name"] == "foolbox:LinfPGD" and again.given["steps"] == 3


def test_every_attack_that_can_be_named_can_be_described():
    kinds = packages.get("foolbox").make().kinds()
    assert len(kinds) > 50 and {"LinfPGD", "L2CarliniWagnerAttack", "HopSkipJumpAttack", "EADAttack"} <= kinds.keys()
    for name in kinds:
        entry = attacks.get(f"foolbox:{name}")
        assert entry.family == "foolbox" and entry.help


# ---------------------------------------------------------------- what can be named, and with what


@pytest.mark.parametrize(
    "attack, threat, settings, message",
    [
        (
            "foolbox:LinfPGG",
            THREAT,
            {},
            "foolbox has no attack 'LinfPGG' that can be used here (did you mean 'LinfPGD'?)",
        ),
        ("foobox:LinfPGD", THREAT, {}, "there is no package of attacks 'foobox' (did you mean 'foolbox'?)"),
        ("foolbox:LinfPGD", THREAT, {"stepz": 3}, "unknown key 'stepz' (did you mean 'steps'?)"),
        ("foolbox:LinfPGD", THREAT, {"steps": "ten"}, "'steps': input should be a valid integer"),
        ("foolbox:LinfPGD", "l2:0.5", {}, "foolbox:LinfPGD searches in linf, and the threat is l2:0.5"),
        ("foolbox:VirtualAdversarialAttack", "l2:0.5", {}, "'steps' is missing"),
        ("foolbox:HopSkipJumpAttack", THREAT, {"tensorboard": "/tmp/x"}, "unknown key 'tensorboard'"),
        ("foolbox:attacks", THREAT, {}, "foolbox has no attack 'attacks'"),
        ("foolbox:attacks.LinfPGD", THREAT, {}, "foolbox has no attack 'attacks.LinfPGD'"),
        ("foolbox:Attack", THREAT, {}, "foolbox has no attack 'Attack'"),
        ("foolbox:__builtins__", THREAT, {}, "foolbox has no attack '__builtins__'"),
        ("foolbox:", THREAT, {}, "foolbox has no attack ''"),
        ("os:system", THREAT, {}, "there is no package of attacks 'os'; known: art, autoattack, foolbox, torchattacks"),
        ("mine.py:attack", THREAT, {}, "there is no package of attacks 'mine.py'"),
    ],
)
def test_bad_words_get_one_line(attack, threat, settings, message):
    x = torch.rand(2, 3, 4, 4)
    with pytest.raises(UserError) as caught:
        ht.attack(Network().eval(), x, torch.zeros(2, dtype=torch.long), attack, threat=threat, **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name, install",
    [
        ("torchattacks:PGD", "pip install torchattacks"),
        ("art:DeepFool", "pip install adversarial-robustness-toolbox"),
        ("autoattack:standard", "pip install git+https://github.com/fra31/auto-attack"),
        ("foolbox:FGSM", "pip install foolbox"),
    ],
)
def test_a_missing_package_is_named_with_its_command(monkeypatch, name, install):
    module = packages.get(name.partition(":")[0]).make().module
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(UserError, match=r"which (is not installed|cannot be imported here)") as caught:
        attacks.get(name)
    assert install in str(caught.value)


def test_a_run_folder_may_name_an_attack_of_a_package_and_nothing_else_of_it(tmp_path):
    words = {
        "attack": {"name": "foolbox:LinfPGD", "steps": 3},
        "attacks": ["art:DeepFool", {"name": "autoattack:square"}],
    }
    assert stored_settings(words, {}, folder=tmp_path) == words
    for wrong in (
        {"model": "art:DeepFool"},
        {"attack": "os:system"},
        {"attack": "foolbox:a/b"},
        {"attack": {"loss": "art:X"}},
    ):
        with pytest.raises(UserError, match="which is code, or a file or folder outside of the run"):
            stored_settings(wrong, {}, folder=tmp_path)


def test_the_settings_of_a_signature():
    class Kind:
        def __init__(
            self, model, steps=10, c=1, alpha: float = 1, lr=0.1, on=True, word="a", *, best: int | None = None,
            function=print, pair=(1, 2), device=None, verbose=False, many: "list[float] | None" = None,
        ):  # fmt: skip
            pass

    found = {item.name: (item.type, item.default) for item in read_signature(Kind)}
    assert found.keys() == {"steps", "c", "alpha", "lr", "on", "word", "best"}
    assert found["steps"][0] is int and found["on"] == (bool, True) and found["word"] == (str, "a")
    assert found["best"] == (int | None, None) and found["c"] == (int | float, 1)

    class Needy:
        def __init__(self, model, images):
            pass

    assert not package_attack.can_be_made(Needy) and package_attack.can_be_made(Kind)


# ---------------------------------------------------------------- packages with other interfaces


def torchattacks_like():
    """A package whose attacks are called as torchattacks' are; `Liar` says more than the ball allows."""

    class Attack:
        def __init__(self, name, model):
            self.model = model

        def set_device(self, device):
            self.device = device

        def __call__(self, images, labels):
            return self.forward(images, labels)

    class Step(Attack):
        def __init__(self, model, eps=8 / 255, alpha=4 / 255, steps=3):
            super().__init__("Step", model)
            self.eps, self.alpha, self.steps = eps, alpha, steps

        def forward(self, images, labels):
            x = images.clone().requires_grad_()
            torch.nn.functional.cross_entropy(self.model(x), labels).backward()
            return (images + self.alpha * x.grad.sign()).clamp(0, 1)

    class Liar(Attack):
        def __init__(self, model, eps=8 / 255, shape=1):
            super().__init__("Liar", model)
            self.shape = shape

        def forward(self, images, labels):
            if self.shape == 3:
                raise RuntimeError("out of\nluck")
            return (
                torch.full_like(images, float("nan"))
                if self.shape == 2
                else images[:1]
                if self.shape == 0
                else 1 - images
            )

    module, inner = types.ModuleType("torchattacks"), types.ModuleType("torchattacks.attack")
    module.Step, module.Liar, module.Attack, module.attack, inner.Attack = Step, Liar, Attack, inner, Attack
    return {"torchattacks": module, "torchattacks.attack": inner}


@pytest.fixture
def small_package(monkeypatch):
    for name, module in torchattacks_like().items():
        monkeypatch.setitem(sys.modules, name, module)


def test_a_step_keeps_its_share_of_the_radius(small_package):
    net, x = Network().eval(), torch.full((3, 3, 4, 4), 0.5)
    y = net(x).argmax(dim=1)
    moved = ht.attack(net, x, y, "torchattacks:Step", threat="linf:0.1") - x
    assert torch.allclose(moved.abs(), torch.full_like(moved, 0.05))
    moved = ht.attack(net, x, y, "torchattacks:Step", threat="linf:0.1", alpha="1/50") - x
    assert torch.allclose(moved.abs(), torch.full_like(moved, 0.02))


def test_what_a_package_claims_is_not_believed(small_package):
    net, x = Network().eval(), torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(dim=1)
    for shape in (1, 2):  # far outside of the ball; not numbers
        attack = {"name": "torchattacks:Liar", "shape": shape}
        assert ht.evaluate(net, (x, y), attack=attack, threat="linf:0.01", quiet=True).robust_accuracy == 1
    for shape, message in (
        (0, r"must return images of shape \(8, 3, 4, 4\), found \(1,"),
        (3, "failed on 8 images: out of luck"),
    ):
        with pytest.raises(UserError, match=message):
            ht.attack(net, x, y, "torchattacks:Liar", threat="linf:0.01", shape=shape)


def test_the_officials_warnings_are_shown_once(monkeypatch):
    class AutoAttack:
        def __init__(self, model, norm, eps, seed, verbose, device, version, attacks_to_run):
            self.model, self.eps, self.attacks_to_run, self.version = model, eps, attacks_to_run, version
            self.logger, self.square = types.SimpleNamespace(log=print), types.SimpleNamespace(n_queries=5000)
            self.apgd_targeted = self.fab = types.SimpleNamespace(n_target_classes=9)
            assert norm == "Linf" and (version == "custom") == bool(attacks_to_run)

        def run_standard_evaluation(self, x, y, bs):
            self.logger.log("Warning: it seems to be a randomized defense!")
            self.logger.log("Warning: it seems to be a randomized defense!")
            assert self.fab.n_target_classes == 3 and self.square.n_queries == (7 if self.version == "custom" else 5000)
            return (x + self.eps).clamp(0, 1)

    monkeypatch.setitem(sys.modules, "autoattack", types.SimpleNamespace(AutoAttack=AutoAttack))
    net, x = Network().eval(), torch.full((3, 3, 4, 4), 0.5)
    y = net(x).argmax(dim=1)
    for name, settings in (("standard", {}), ("square", {"n_queries": 7})):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            moved = ht.attack(net, x, y, f"autoattack:{name}", threat="linf:0.25", **settings) - x
        assert torch.equal(moved, torch.full_like(moved, 0.25))
        assert [str(item.message) for item in caught] == [f"autoattack:{name}: it seems to be a randomized defense!"]
    with pytest.raises(UserError, match="unknown key 'n_queries'"):
        ht.attack(net, x, y, "autoattack:standard", threat="linf:0.25", n_queries=7)
