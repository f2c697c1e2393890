"""A model that changes its input in place changes neither the caller's tensor nor the numbers."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import Ascent, MinimumNorm, Square
from hardtack.attacks.input_guard import guard_input
from hardtack.threats import Threat
from tiny_runs import Linear, images


class Plain(Linear):
    def forward(self, x):
        return super().forward(x - 0.5)


class InPlace(Linear):
    def forward(self, x):
        x -= 0.5
        return super().forward(x)


class BehindTheVersionCounter(Linear):
    def forward(self, x):
        x.data.sub_(0.5)
        return super().forward(x)


class InLargeBatches(Linear):
    def forward(self, x):
        if len(x) > 8:
            x.data.mul_(0.9)
        return super().forward(x)


IN_PLACE = [InPlace, BehindTheVersionCounter]


def data(count=24):
    x = images(count)
    with torch.no_grad():
        return x, Plain()(x).argmax(dim=1)


def codes(result):
    return {flag["code"]: flag["level"] for flag in result.flags if flag["code"] != "few_classes"}


@pytest.mark.parametrize("make", IN_PLACE)
@pytest.mark.parametrize("settings", [{"suite": "clean"}, {"suite": "pgd"}, {"suite": "autoattack", "tier": "fast"}])
def test_an_evaluation_measures_the_images_themselves_and_flags_the_model(make, settings):
    x, y = data()
    before = x.clone()
    threat = {} if settings["suite"] == "clean" else {"threat": "linf:0.01"}
    measured = ht.evaluate(make(), (x, y), quiet=True, **settings, **threat)
    expected = ht.evaluate(Plain(), (x, y), quiet=True, **settings, **threat)
    assert torch.equal(x, before), "the caller's images are as they were"
    assert codes(measured) == {"changes_input": "red"} and codes(expected) == {}
    assert [r.value for r in measured.results] == [r.value for r in expected.results]
    assert np.array_equal(measured.verdicts["clean_correct"], expected.verdicts["clean_correct"])
    if threat:
        assert np.array_equal(measured.robust, expected.robust)
        assert expected.robust_accuracy < expected.clean_accuracy == 1
    assert all("changes_input" in {flag["code"] for flag in result.flags} for result in measured.results)


@pytest.mark.parametrize("make", IN_PLACE)
@pytest.mark.parametrize("name, settings", [("pgd", {"steps": 5}), ("square", {"steps": 20}), ("fab", {"steps": 5})])
def test_attacks_on_a_batch_leave_the_callers_tensor(make, name, settings):
    x, y = data()
    before = x.clone()
    with pytest.warns(UserWarning, match="changes its input in place"):
        found = ht.attack(make(), x, y, name, threat="linf:0.02", seed=0, **settings)
    assert torch.equal(x, before)
    assert torch.equal(found, ht.attack(Plain(), x, y, name, threat="linf:0.02", seed=0, **settings))


@pytest.mark.parametrize("make", IN_PLACE)
def test_an_attack_called_as_a_value_is_guarded_too(make):
    x, y = data()
    before = x.clone()
    threat = Threat.parse("linf:0.02")
    nearest = MinimumNorm(threat=threat, steps=8)
    for attack in (Ascent(threat=threat, steps=4), Square(threat=threat, steps=10), nearest):
        assert torch.equal(attack(make(), x, y), attack(Plain(), x, y)) and torch.equal(x, before)
    assert torch.equal(nearest.distances(make(), x, y)[1], nearest.distances(Plain(), x, y)[1])


@pytest.mark.parametrize("make", IN_PLACE)
@pytest.mark.parametrize("name, settings", [("jacobian", {"of": ("network",)}), ("perturbations", {})])
def test_an_analysis_is_about_the_images_themselves(make, name, settings):
    x, y = data(6)
    before = x.clone()
    own, plain = (ht.analyze(model, (x, y), name, quiet=True, **settings) for model in (make(), Plain()))
    assert torch.equal(x, before)
    assert {flag["code"] for result in own.results for flag in result.flags} == {"changes_input"}
    assert [r.value for r in own.results] == pytest.approx([r.value for r in plain.results], rel=1e-5)


def test_a_change_in_large_batches_only_is_flagged():
    x, y = data()
    assert codes(ht.evaluate(InLargeBatches(), (x, y), suite="clean", quiet=True))["changes_input"] == "red"


def test_the_guard_of_an_ordinary_model_is_gone_after_its_first_call():
    model, x = Linear(), images(2)
    with guard_input(model) as guard:
        model(x)
        assert guard.decided and not guard.changed
        assert not model._forward_pre_hooks and not model._forward_hooks
        given = []
        model.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
        model(x)
        assert given[0] is x, "no more copies"


def test_the_guard_leaves_no_hooks_and_passes_gradients():
    model, x = InPlace(), images(2).requires_grad_()
    with guard_input(model) as guard:
        for _ in range(2):
            (gradient,) = torch.autograd.grad(model(x).sum(), x)
        twin = copy.deepcopy(model)
        assert torch.equal(twin(x), model(x)), "a copy of the model is guarded too"
    assert guard.changed and gradient.abs().sum() > 0
    assert not model._forward_pre_hooks and not model._forward_hooks


def test_models_without_a_tensor_as_input_are_let_through():
    class Named(nn.Module):
        def forward(self, *, x):
            return x.sum()

    with guard_input(Named()) as guard:
        Named()(x=images(1))
    assert not guard.changed
