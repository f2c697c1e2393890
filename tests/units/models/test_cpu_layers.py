"""Layers of frozen copies on a CPU: the numbers of torch's own layers, to rounding, whatever the size of the batch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.models import cpu_layers

pytestmark = pytest.mark.skipif(not cpu_layers.available(), reason="this torch has no oneDNN")

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
TYPES = list(TOLERANCE)


def error(out, wanted):
    return float((out.float() - wanted.float()).norm() / wanted.float().norm())


def packed(layer):
    model = nn.Sequential(layer)
    cpu_layers.pack(model)
    return model[0]


def gradients(function, x, weights):
    image = x.clone().requires_grad_()
    out = function(image)
    return out.detach(), torch.autograd.grad((out * weights).sum(), image)[0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (5, 24), (3, 17, 24), (2, 3, 4, 24)])
def test_a_packed_layer_is_the_layer(dtype, bias, shape):
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 40, bias=bias).requires_grad_(False), torch.randn(shape)
    weights = torch.randn(*shape[:-1], 40)
    wanted, wanted_gradient = gradients(layer, x, weights)
    layer, x, weights = layer.to(dtype), x.to(dtype), weights.to(dtype)
    mine = packed(layer)
    out, gradient = gradients(mine, x, weights)
    with torch.no_grad():
        assert torch.equal(mine(x), out)
    assert type(mine) is not nn.Linear and out.shape == wanted.shape and out.dtype == dtype
    assert error(out, wanted) < TOLERANCE[dtype] and error(gradient, wanted_gradient) < TOLERANCE[dtype]


def test_rows_that_are_not_side_by_side():
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 6).requires_grad_(False), torch.randn(6, 5).t()
    weights = torch.randn(6, 5).t()
    wanted, wanted_gradient = gradients(layer, x, weights)
    out, gradient = gradients(packed(layer), x, weights)
    assert error(out, wanted) < 1e-5 and error(gradient, wanted_gradient) < 1e-5


def test_an_empty_batch_and_another_type_are_torchs_business():
    layer = packed(nn.Linear(6, 4).requires_grad_(False))
    assert layer(torch.zeros(0, 6)).shape == (0, 4)
    with pytest.raises(RuntimeError, match="dtype"):
        layer(torch.zeros(2, 6, dtype=torch.bfloat16))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_other_layers_stay():
    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, given, out: out + 1)
    model = nn.Sequential(Doubled(4, 4), hooked, nn.Conv2d(4, 4, 1), nn.Linear(4, 4))
    cpu_layers.pack(model)
    assert type(model[0]) is Doubled and model[1] is hooked and type(model[3]) is not nn.Linear


def test_there_is_no_second_derivative():
    layer, x = packed(nn.Linear(6, 4).requires_grad_(False)), torch.randn(2, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 192), (256, 64), (192, 768)])
def test_a_row_does_not_depend_on_the_batch(dtype, inputs, outputs):
    """Verdicts must not depend on how many images are in a batch."""
    torch.manual_seed(0)
    layer = packed(nn.Linear(inputs, outputs).requires_grad_(False).to(dtype))
    x = torch.randn(17 * 40, inputs).to(dtype)
    whole = layer(x)
    for rows in (2, 17, 17 * 3, 17 * 32):
        assert torch.equal(layer(x[:rows]), whole[:rows])
        assert torch.equal(layer(x[-rows:]), whole[-rows:])


# ---------------------------------------------------------------- attention


def attention_inputs(tokens, width, images=2, heads=3):
    torch.manual_seed(0)
    # as a linear layer leaves them: the parts of a token side by side
    joined = torch.randn(images, tokens, 3, heads, width)
    return [part.transpose(1, 2) for part in joined.unbind(2)], torch.randn(images, heads, tokens, width)


def attended(q, k, v, weights, scale):
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    with cpu_layers.OwnAttention():
        out = F.scaled_dot_product_attention(*leaves, scale=scale)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)], type(out.grad_fn).__name__


@pytest.mark.parametrize(("tokens", "width"), [(1, 4), (17, 16), (65, 64)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_is_torchs_attention(tokens, width, scale):
    parts, weights = attention_inputs(tokens, width)
    wanted, name = attended(*parts, weights, scale)
    assert name != "_AttentionBackward"
    half = [part.bfloat16() for part in parts]
    found, name = attended(*half, weights.bfloat16(), scale)
    assert name == "_AttentionBackward"
    for mine, exact in zip(found, wanted, strict=True):
        assert mine.dtype == torch.bfloat16
        if exact.norm() > 1e-3:  # one token attends to itself: its gradient to q and k is nothing but rounding
            assert error(mine, exact) < 2e-2


@pytest.mark.parametrize("named", [{"is_causal": True}, {"attn_mask": torch.zeros(5, 5).bool().fill_diagonal_(True)}])
def test_attention_of_other_kinds_is_torchs_own(named):
    (q, k, v), _ = attention_inputs(5, 8)
    q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
    with cpu_layers.OwnAttention():
        out = F.scaled_dot_product_attention(q, k, v, **named)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v, **named))
    assert not torch.equal(out, F.scaled_dot_product_attention(q, k, v))


def test_long_sequences_and_cross_attention_are_torchs_own():
    (q, k, v), _ = attention_inputs(5, 8)
    long = torch.zeros(1, 1, cpu_layers.LONGEST + 1, 4, dtype=torch.bfloat16)
    assert not cpu_layers.fits(long, long, long)
    assert not cpu_layers.fits(q.bfloat16(), k[:, :, :3].bfloat16(), v[:, :, :3].bfloat16())
    assert not cpu_layers.fits(q, k, v)
