"""Every mechanism does what it says, and the truth about it holds."""

import pytest
import torch

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet import build_defence, find_truth
from hardtack.evaluation.gauntlet.truth import share_correct

NAMES = mechanisms.names()


def logits_of(defence, x):
    torch.manual_seed(0)
    with torch.no_grad():
        return defence.model(x)


def test_there_are_forty_mechanisms_and_a_third_have_drawn_parameters(defences):
    attacked = [name for name in NAMES if not defences[name].honest]
    drawn = [name for name in attacked if defences[name].parameters]
    assert len(attacked) >= 40
    assert len(drawn) >= len(attacked) / 3


@pytest.mark.parametrize("name", NAMES)
def test_a_mechanism_gives_finite_logits_and_keeps_the_values_it_promises(core, name):
    defence = build_defence(name, core, seed=0)
    logits = logits_of(defence, core.x)
    assert logits.shape == (len(core.x), core.classes) and logits.isfinite().all()
    if defence.same_values:
        # a cheat promises the values of a first call, gradients off, on a small batch
        with torch.no_grad():
            torch.testing.assert_close(build_defence(name, core, seed=0).model(core.x[:2]), core.model(core.x[:2]))


@pytest.mark.parametrize("name", NAMES)
def test_the_drawn_parameters_are_a_function_of_the_seed(core, name):
    first, again = (build_defence(name, core, seed=0) for _ in range(2))
    others = (build_defence(name, core, seed=seed) for seed in range(1, 6))
    assert first.parameters == again.parameters
    assert torch.equal(logits_of(first, core.x[:2]), logits_of(again, core.x[:2]))
    assert not first.parameters or any(first.parameters != other.parameters for other in others)


@pytest.mark.parametrize("name", NAMES)
def test_the_defended_model_keeps_most_of_the_accuracy(core, defences, name):
    defence = defences[name]
    assert share_correct(defence.target, core.x, core.y, draws=8).mean() >= 0.6


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_verified_on_the_deployed_model(core, defences, name):
    defence = defences[name]
    truth = find_truth(core, defence, steps=10, thorough=False)
    assert core.threat.contains(truth.x_adv, core.x).all()
    if not defence.random:
        assert torch.equal(share_correct(defence.target, truth.x_adv, core.y), truth.robust)
    assert truth.robust_accuracy <= truth.clean_accuracy
