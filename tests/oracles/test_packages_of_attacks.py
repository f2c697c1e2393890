"""Attacks of the packages that are installed, by name, on a small network: every one of them is called once.

`pip install foolbox torchattacks adversarial-robustness-toolbox autoattack`; torchattacks needs `--no-deps`. Then
`pytest -m oracle tests/oracles/test_packages_of_attacks.py`.
"""

import dataclasses
import warnings

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks, packages

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
THREATS = {"linf": "linf:0.02", "l2": "l2:0.3", "l1": "l1:2"}
# small settings, where an attack has one of this name
SHORT = {
    "steps": 5, "n_iter": 5, "n_queries": 20, "binary_search_steps": 2, "max_iterations": 20, "restarts": 2,
    "max_eval": 50, "init_eval": 10, "query_limit": 100, "num_trial": 5, "init_size": 20, "max_iter": 5,
    "nb_sample": 8, "delta": 0.1,
}  # fmt: skip
# slow even with these; `autoattack:plus` and the AutoAttacks run by themselves below
LEFT_OUT = ("BrendelBethge", "AutoAttack", "plus", "rand", "PixelAttack", "ThresholdAttack", "ZooAttack", "SignOPT")
# they need more than images and labels, and say so
REFUSES = {"art:GeoDA"}
FEWEST = {"foolbox": 50, "torchattacks": 30, "art": 20, "autoattack": 9}


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(8 * 64, 10)).eval()


def batch(net, count=6):
    x = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return x, net(x).argmax(dim=1)


def kinds(package):
    return packages.get(package).make().kinds()


def shortened(name):
    own = {item.name for item in dataclasses.fields(attacks.get(name).make)}
    return {key: value for key, value in SHORT.items() if key in own}


@pytest.mark.parametrize("package", FEWEST)
def test_every_attack_runs_and_keeps_to_the_contract(package):
    pytest.importorskip(packages.get(package).make().module)
    net = network()
    x, y = batch(net)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert len(kinds(package)) >= FEWEST[package]
    broken = {}
    for kind in kinds(package):
        name = f"{package}:{kind}"
        if any(word in kind for word in LEFT_OUT) or name in REFUSES:
            continue
        for threat in THREATS.values():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = ht.attack(net, x, y, name, threat=threat, seed=1, details=True, **shortened(name))
            except UserError as error:
                assert "searches in" in str(error) or "Norm order must be" in str(error), f"{name} at {threat}: {error}"
                continue
            broken[name] = max(broken.get(name, 0), int(found.success.sum()))
            assert found.x_adv.shape == x.shape
    assert (
        broken.keys()
        >= {f"{package}:{kind}" for kind in kinds(package) if not any(word in kind for word in LEFT_OUT)} - REFUSES
    )
    assert sum(count > 0 for count in broken.values()) > len(broken) / 2, broken
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_torchattacks_images_are_its_own():
    torchattacks = pytest.importorskip("torchattacks")
    net = network()
    x, y = batch(net)
    direct = torchattacks.PGD(net, eps=0.02, alpha=0.005, steps=7, random_start=False)(x, y)
    found = ht.attack(net, x, y, "torchattacks:PGD", threat="linf:0.02", steps=7, random_start=False)  # alpha = eps / 4
    assert torch.equal(found, direct)


def test_arts_images_are_its_own():
    evasion = pytest.importorskip("art.attacks.evasion")
    from art.estimators.classification import PyTorchClassifier

    net = network()
    x, y = batch(net)
    shape = {"input_shape": (3, 8, 8), "nb_classes": 10, "clip_values": (0.0, 1.0), "device_type": "cpu"}
    classifier = PyTorchClassifier(net, loss=nn.CrossEntropyLoss(), **shape)
    pgd = evasion.ProjectedGradientDescent(classifier, norm=2, eps=0.3, eps_step=0.1, max_iter=5, verbose=False)
    direct = torch.from_numpy(pgd.generate(x.numpy(), y.numpy()))
    found = ht.attack(net, x, y, "art:ProjectedGradientDescent", threat="l2:0.3", max_iter=5)
    assert torch.allclose(found, direct, atol=1e-6)


@pytest.mark.parametrize("threat", ["linf:0.01", "l2:0.1"])
def test_the_official_verdicts_are_ours(threat):
    pytest.importorskip("autoattack")
    net = network()
    x, y = batch(net, count=24)
    attack = {"name": "autoattack:standard"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ht.evaluate(net, (x, y), attack=attack, threat=threat, quiet=True).robust
    ours = ht.evaluate(net, (x, y), suite="autoattack", tier="exact", threat=threat, quiet=True).robust
    assert 0 < ours.sum() < 24, "the example must have both"
    assert (theirs != ours).sum() <= 1
