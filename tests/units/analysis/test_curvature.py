"""Eigenvalues that are known, and sharpness where the loss is a known function of the weights."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hardtack as ht
from hardtack.analysis.curvature.hessian import Hessian, lanczos
from hardtack.analysis.image_cache import ImageCache
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from tiny_runs import Linear, images, labels

CPU = Runtime(device="cpu")


def look(model, data=None, **settings):
    return ht.analyze(model, data or (images(10), labels(10)), "curvature", runtime=CPU, quiet=True, **settings)


def test_a_model_that_keeps_its_weights_from_the_loss_is_refused():
    class Cut(Linear):
        def forward(self, x):
            return super().forward(x).detach()

    with pytest.raises(UserError, match="passes no gradient to its weights"):
        look(Cut())


def draws(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda number: torch.randn(size, generator=generator)


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.Tanh(), nn.Linear(3, 4)).eval()


def dense_hessian(model, x, y):
    weights = dict(model.named_parameters())
    flat = torch.cat([weight.detach().reshape(-1) for weight in weights.values()]).double()

    def loss(vector):
        parts = vector.split([weight.numel() for weight in weights.values()])
        named = {name: part.view_as(weight) for (name, weight), part in zip(weights.items(), parts, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, named, x.double()), y)

    return torch.autograd.functional.hessian(loss, flat)


def test_eigenvalues_of_a_quadratic():
    values = torch.cat([torch.tensor([9.0, 4.0, 1.0]), torch.linspace(-2, 0.5, 60)])
    turn, _ = torch.linalg.qr(torch.randn(63, 63, generator=torch.Generator().manual_seed(0)))
    matrix = turn @ torch.diag(values) @ turn.T
    found = lanczos(lambda v: matrix @ v, draws(63), top=3, tolerance=1e-4, most=60)
    assert found.converged and found.products < 40
    assert found.values == pytest.approx([9, 4, 1], abs=2e-3) and found.lowest == pytest.approx(-2, abs=0.05)
    assert np.all(np.abs(found.values - [9, 4, 1]) <= found.errors + 1e-4), "errors are bounds"


def test_nearly_equal_eigenvalues_and_those_of_a_singular_matrix_are_found():
    near = torch.diag(torch.cat([torch.tensor([5.0, 4.999, 4.998]), torch.linspace(0, 1, 50)]))
    found = lanczos(lambda v: near @ v, draws(53), top=3, tolerance=1e-5, most=53)
    assert found.values == pytest.approx([5, 4.999, 4.998], abs=2e-4)
    single = torch.diag(torch.tensor([3.0, *[0.0] * 9]))
    found = lanczos(lambda v: single @ v, draws(10), top=3, most=20)
    assert found.values == pytest.approx([3, 0, 0], abs=1e-5) and found.converged


def test_too_few_products_are_admitted():
    matrix = torch.diag(torch.linspace(0, 1, 500))
    found = lanczos(lambda v: matrix @ v, draws(500), top=2, tolerance=1e-6, most=6)
    assert not found.converged and found.products == 6
    assert found.values[0] < 1 <= found.values[0] + found.errors[0]


def test_a_killed_lanczos_goes_on_where_it_stopped(tmp_path):
    matrix = torch.diag(torch.linspace(0, 1, 80) ** 2)
    whole, asked = lanczos(lambda v: matrix @ v, draws(80), top=2), []

    def dying(vector):
        asked.append(vector)
        if len(asked) == 9:
            raise KeyboardInterrupt
        return matrix @ vector

    with pytest.raises(KeyboardInterrupt):
        lanczos(dying, draws(80), top=2, folder=tmp_path)
    found = lanczos(dying, draws(80), top=2, folder=tmp_path)
    assert np.array_equal(found.values, whole.values) and found.products == whole.products == len(asked) - 1


def test_the_spectrum_of_a_network_is_that_of_its_dense_hessian():
    model, (x, y) = small_net(), (images(10), labels(10))
    exact = torch.linalg.eigvalsh(dense_hessian(copy.deepcopy(model).double(), x, y)).flip(0).numpy()
    found = look(model, (x, y), top=4, tolerance=1e-4, probes=300)
    assert found.arrays["eigenvalues"] == pytest.approx(exact[:4], rel=1e-3)
    assert found.of("hessian_eigenvalue", "lowest").value == pytest.approx(exact[-1], rel=0.05)
    trace = found.of("hessian_trace")
    assert abs(trace.value - exact.sum()) < trace.high - trace.low
    assert look(model, (x, y), top=4, tolerance=1e-4, batch_size=3).arrays["eigenvalues"] == pytest.approx(
        exact[:4], rel=1e-3
    )
    assert not any(weight.grad is not None for weight in model.parameters())


def test_a_transformer_with_fused_attention_has_a_hessian():
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, seed=0)
    found = look(model, top=1, tolerance=0.05, most=15)
    assert found.of("hessian_eigenvalue", "1").value > 0 and found.facts["products"] <= 15


def test_sharpness_is_the_rise_of_the_loss_along_the_gradient():
    model, (x, y) = Linear(), (images(10), labels(10))
    found = look(model, (x, y), rho=0.3)
    moved = copy.deepcopy(model)
    loss = F.cross_entropy(moved(x), y)
    slopes = torch.autograd.grad(loss, list(moved.parameters()))
    length = torch.cat([slope.reshape(-1) for slope in slopes]).norm()
    with torch.no_grad():
        for weight, slope in zip(moved.parameters(), slopes, strict=True):
            weight += 0.3 * slope / length
    rise = (F.cross_entropy(moved(x), y) - loss).item()
    one, worst = found.of("sharpness", "sam"), found.of("sharpness", "worst")
    assert one.value == pytest.approx(rise, rel=1e-4) and worst.value >= one.value > 0
    assert look(model, (x, y), rho=0.1).of("sharpness", "sam").value < one.value
    near = look(
        model, (x, y), rho=0.01
    )  # where the loss is a slope, no place of the ball is higher than the first step's
    assert near.of("sharpness", "worst").value == pytest.approx(near.of("sharpness", "sam").value, rel=0.02)


def test_weights_come_back_to_the_bit():
    model = small_net()
    hessian = Hessian(model, ImageCache([(images(2), labels(2), torch.arange(2))], torch.device("cpu"), 0))
    before = copy.deepcopy(model.state_dict())
    with hessian.displaced(torch.full((sum(hessian.sizes),), 0.1)):
        assert not torch.equal(model[1].weight, before["1.weight"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_attacked_loss_is_sharper_for_a_linear_model_and_mistakes_are_refused():
    data = (images(10) * 0.5 + 0.25, labels(10))
    clean, attacked = look(Linear(), data), look(Linear(), data, threat="linf:16/255", attack="fgsm")
    assert attacked.of("sharpness", "sam").value > clean.of("sharpness", "sam").value
    assert attacked.of("sharpness", "sam").threat == "linf:16/255"
    for settings, said in [({"top": 5, "most": 5}, "need more than 5"), ({"attack": "pgd"}, "needs its threat")]:
        with pytest.raises(UserError, match=said):
            look(Linear(), data, **settings)
