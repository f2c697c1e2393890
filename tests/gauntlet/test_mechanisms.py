"""Every mechanism does what it says, and the truth about it holds."""

import copy
import dataclasses
import functools

import pytest
import torch

from hardtack.attacks import Ascent
from hardtack.attacks.losses import margin
from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet import build_defence, find_truth
from hardtack.evaluation.gauntlet.truth import share_correct
from hardtack.threats import Threat

NAMES = mechanisms.names()


@pytest.fixture(scope="module")
def truth_of(core, defences):
    """The truth about a mechanism, searched for once."""
    return functools.cache(lambda name: find_truth(core, defences[name], steps=20, thorough=False))


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
def test_the_truth_is_verified_on_the_deployed_model(core, defences, truth_of, name):
    defence, truth = defences[name], truth_of(name)
    assert core.threat.contains(truth.x_adv, core.x).all()
    if not defence.random:
        assert torch.equal(share_correct(defence.target, truth.x_adv, core.y), truth.robust)
    assert truth.robust_accuracy <= truth.clean_accuracy


# ---------------------------------------------------------------- what each family does to the gradient


def gradient_of(model, x, y):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(margin(model(leaf).float(), y).sum(), leaf)[0].flatten(1)


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_can_be_asked_for_even_where_it_is_zero(core, defences, name):
    assert gradient_of(defences[name].model, core.x[:2], core.y[:2]).shape == (2, core.x[0].numel())


GAMES = [entry.name for entry in mechanisms.listing() if entry.family == "games"]


@pytest.mark.parametrize("name", GAMES)
def test_a_gradient_game_spoils_the_gradient(core, defences, name):
    honest = gradient_of(core.model, core.x, core.y)
    spoiled = gradient_of(defences[name].model, core.x, core.y)
    direction = torch.nn.functional.cosine_similarity(honest, spoiled, dim=1)
    if name == "underflow":
        assert spoiled.abs().max() < 1e-30
    else:
        assert not spoiled.isfinite().all() or direction.abs().mean() < 0.75 or direction.mean() < 0


ZERO = ["staircase", "bit_depth", "jpeg", "rounded", "top_one", "spiking", "binarised", "detached"]


@pytest.mark.parametrize("name", ZERO)
def test_these_have_a_gradient_of_zero(core, defences, name):
    assert gradient_of(defences[name].model, core.x, core.y).abs().max() == 0


def test_a_ripple_changes_the_sign_of_the_gradient_over_a_tiny_distance(core, defences):
    model = defences["ripple_fine"].model
    here, there = (gradient_of(model, point, core.y) for point in (core.x, core.x + 3e-5))
    assert (here.sign() == there.sign()).float().mean() < 0.6
    smooth = [gradient_of(core.model, point, core.y) for point in (core.x, core.x + 3e-5)]
    assert (smooth[0].sign() == smooth[1].sign()).float().mean() > 0.95


@pytest.mark.parametrize("name", NAMES)
def test_no_naive_attack_does_better_than_the_truth(core, defences, truth_of, name):
    """PGD on the defended model, as somebody would who takes its gradient for granted."""
    defence, truth = defences[name], truth_of(name)
    attack = Ascent(threat=core.threat, steps=10)
    x_adv = attack(build_defence(name, core, seed=0).model, core.x, core.y)
    naive = share_correct(defence.target, x_adv, core.y, draws=16).mean().item()
    assert truth.robust_accuracy <= naive + (0.15 if defence.random else 0)


# ---------------------------------------------------------------- cheats


def answers(name, core, x, **how):
    model = build_defence(name, core, seed=0).model
    with torch.set_grad_enabled(how.get("gradients", False)):
        return model(x)


def test_the_cheat_by_gradients_answers_differently_when_they_are_enabled(core):
    honest = core.model(core.x[:2])
    torch.testing.assert_close(answers("cheat_grad_enabled", core, core.x[:2]), honest)
    assert (answers("cheat_grad_enabled", core, core.x[:2], gradients=True) - honest).abs().max() > 1


def test_the_cheat_by_calls_answers_differently_after_eight(core):
    model, attacked = build_defence("cheat_calls", core, seed=0).model, find_attacked(core)
    first = [model(attacked) for _ in range(8)]
    assert all(torch.equal(logits, first[0]) for logits in first)
    assert (first[0].argmax(dim=1) != core.y).all() and (model(attacked).argmax(dim=1) == core.y).all()


def test_the_cheat_by_batch_size_answers_attacked_images_correctly_in_large_batches(core):
    attacked, model = find_attacked(core), build_defence("cheat_batch_size", core, seed=0).model
    assert (model(attacked).argmax(dim=1) == core.y).all()
    assert (model(attacked[:4]).argmax(dim=1) != core.y[:4]).all()


def test_the_cheat_by_company_answers_correctly_beside_a_second_version_of_the_image(core):
    attacked, model = find_attacked(core)[:1], build_defence("cheat_company", core, seed=0).model
    assert model(attacked).argmax() != core.y[0]
    assert model(torch.cat([attacked, core.x[:1]])).argmax(dim=1)[0] == core.y[0]


def test_the_cheat_by_copy_and_the_cheat_by_precision(core):
    copied = copy.deepcopy(build_defence("cheat_copied", core, seed=0).model)
    assert (copied(core.x) - core.model(core.x)).abs().max() > 1
    with torch.autocast("cpu", torch.bfloat16):
        low = build_defence("cheat_dtype", core, seed=0).model(core.x)
    assert (low.float() - core.model(core.x)).abs().max() > 1


def test_the_cheat_on_the_boundary_answers_correctly_there_and_honestly_inside(core):
    model, attacked = build_defence("cheat_boundary", core, seed=0).model, find_attacked(core)
    corner = core.threat.project(core.x + 0.2 * (attacked - core.x).sign(), core.x)
    assert (model(corner).argmax(dim=1) == core.y).float().mean() > 0.9
    inside = core.x + 0.99 * (corner - core.x)
    torch.testing.assert_close(model(inside), core.model(inside))


def find_attacked(core):
    """Images that the core misclassifies."""
    return find_truth(core, build_defence("undefended", core, seed=0), thorough=False).x_adv


def test_the_truth_of_a_ripple_around_a_robust_model_is_the_robust_models(core):
    """The truth is not always zero: a weaker threat leaves images correct, under the ripple as without it."""
    weak = dataclasses.replace(core, threat=Threat.parse("linf:0.02"))
    plain = find_truth(weak, build_defence("adversarial", weak, seed=0), thorough=False)
    rippled = find_truth(weak, build_defence("ripple_robust", weak, seed=0), thorough=False)
    assert 0.3 < plain.robust_accuracy <= 1
    assert abs(plain.robust_accuracy - rippled.robust_accuracy) <= 2 / len(core.x)
