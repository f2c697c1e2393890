"""Gradients through layers in fp16: what is too small for fp16 arrives at the pixels all the same."""

import pytest
import torch
from torch import nn

from hardtack.attacks.pool.fast_copy import FastCopy
from hardtack.attacks.pool.gradient_scale import PEAK, GradientScale


class Half(nn.Module):
    """A linear map whose gradient passes through fp16, as in a copy of a model."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return x.half().flatten(1).float() @ self.weight


def gradient_of(model, x, sizes):
    image = x.clone().requires_grad_()
    loss = (model(image) * sizes[:, None]).sum()
    return torch.autograd.grad(loss, image)[0]


def test_each_images_gradient_is_exact_however_small_or_large():
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(12, 4, generator=generator), torch.rand(5, 3, 2, 2, generator=generator)
    sizes = torch.tensor([1.0, 1e-9, 1e-20, 1e9, 0.0])
    exact = weight.sum(dim=1).half().float()  # one rounding to fp16
    wanted = exact.view(1, 3, 2, 2) * sizes[:, None, None, None]
    lost = gradient_of(FastCopy(Half(weight)), x, sizes)
    assert (lost[1:3] == 0).all() and not lost[3].isfinite().all()  # as it is without scaling
    found = gradient_of(FastCopy(Half(weight), scaled=True), x, sizes)
    assert torch.allclose(found, wanted, rtol=2e-3, atol=0.0)
    assert (found[4] == 0).all()


def test_factors_are_powers_of_two_and_of_one_pass():
    scale, x = GradientScale(), torch.rand(3, 2, 2, 2)
    image = x.clone().requires_grad_()
    seen = []
    scaled = scale.pixels(image)
    scaled.register_hook(lambda gradient: seen.append(gradient.clone()))
    logits = scale.logits(scaled.flatten(1))
    (gradient,) = torch.autograd.grad((logits * torch.tensor([[3.0], [1e-12], [7e5]])).sum(), image)
    peaks = seen[0].flatten(1).amax(dim=1)
    assert ((peaks > PEAK / 2) & (peaks <= 2 * PEAK)).all()
    assert torch.equal(gradient.flatten(1).amax(dim=1), torch.tensor([3.0, 1e-12, 7e5]))  # exact: powers of two
    assert scale.factor is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stays_so(value):
    scale = GradientScale()
    image = torch.rand(2, 3, 1, 1, requires_grad=True)
    logits = scale.logits(scale.pixels(image).flatten(1))
    (gradient,) = torch.autograd.grad(logits, image, torch.tensor([[1.0, 1.0, 1.0], [1.0, value, 1.0]]))
    assert gradient[0].isfinite().all() and not gradient[1].isfinite().all()


def test_two_passes_before_their_gradients_do_not_mix():
    model = FastCopy(nn.Flatten(), scaled=True)
    image = torch.rand(2, 3, 1, 1, requires_grad=True)
    first, second = model(image), model(image * 2)
    (gradient,) = torch.autograd.grad(first.sum() * 1e-3 + second.sum() * 1e3, image)
    assert torch.allclose(gradient, torch.full_like(gradient, 2000.001))
