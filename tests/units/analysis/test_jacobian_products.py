"""Products with Jacobians, and the pieces of networks they are of."""

import pytest
import timm
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hardtack.analysis.jacobian.block_parts import (
    block_piece,
    branch_pieces,
    cut,
    features_piece,
    network_piece,
    stretch_piece,
    survey,
)
from hardtack.analysis.jacobian.products import Jacobian
from hardtack.analysis.jacobian.rows import dense_jacobian
from hardtack.base.errors import UserError
from hardtack.models import load_model, wrap

TINY = {
    "vit_digits": {},
    "covit_t2_32": {"depth": 2, "width": 16, "kernels": [3, 3]},
    "xcit_nano_12_patch4_32": {"depth": 2},
    "mobilevit_s_32": {},
    "pvtv2_b0_32": {},
    "swin_tiny_patch2_window4_32": {},
    "cait_s12_patch4_32": {"depth": 2},
    "levit_128s_32": {},
}


def images(count=2, size=32):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def tiny(name, **options):
    size = 8 if name == "vit_digits" else 32
    model = load_model(name, num_classes=5, image_size=size, seed=0, **{**TINY.get(name, {}), **options})
    return model.eval().requires_grad_(False), images(size=size)


def all_pieces(model, x):
    layers = survey(model, x)
    yield from (block_piece(model, layer) for layer in (layers[0], layers[-1]))
    yield from branch_pieces(model, layers[0])
    yield stretch_piece(model, layers, 0, len(layers) - 1)
    yield features_piece(model, tuple(x.shape[1:]), layers)
    yield network_piece(model, tuple(x.shape[1:]), 5)


@pytest.mark.parametrize("name", TINY)
def test_products_are_adjoint_and_do_not_mix_images(name):
    model, x = tiny(name)
    seeds = torch.Generator().manual_seed(1)
    for piece in all_pieces(model, x):
        traced = Jacobian(piece.trace, x, name=piece.name)
        assert (traced.inputs, traced.outputs) == (piece.inputs, piece.outputs)
        traced.check()
        v, u = torch.randn(2, piece.inputs, generator=seeds), torch.randn(2, piece.outputs, generator=seeds)
        pushed, pulled = traced.times(v), traced.transposed(u)
        size = pushed.norm(dim=1) * u.norm(dim=1)
        assert ((pushed * u).sum(1) - (v * pulled).sum(1)).abs().max() < 1e-5 * size.max() + 1e-9, piece.name
        alone = Jacobian(piece.trace, x[1:], name=piece.name)
        assert torch.allclose(alone.times(v[1:]), pushed[1:], rtol=1e-3, atol=1e-5 * float(pushed.abs().max()))


def test_a_product_is_the_derivative():
    model, x = tiny("vit_digits")
    (first, *_) = survey(model, x)
    piece = block_piece(model, first)
    traced = Jacobian(piece.trace, x)
    v = torch.randn(2, piece.inputs, generator=torch.Generator().manual_seed(2))
    feature = traced.x.detach()
    with sdpa_kernel(SDPBackend.MATH):
        _, exact = torch.func.jvp(first.block.module, (feature,), (v.view(feature.shape),))
    assert torch.allclose(traced.times(v), exact.flatten(1), atol=1e-5)
    bare = Jacobian(piece.trace, x, bare=True)
    assert torch.allclose(bare.times(v), exact.flatten(1) - v, atol=1e-5)


def test_rows_of_the_jacobian_are_autograds():
    model, x = tiny("vit_digits")
    (first, *_) = survey(model, x)
    piece = block_piece(model, first)
    feature = piece.trace(x[:1])[0].detach()
    exact = torch.autograd.functional.jacobian(lambda z: first.block.module(z).flatten(), feature).flatten(1)
    assert torch.allclose(dense_jacobian(piece, x[0]), exact, atol=1e-5)
    assert torch.allclose(dense_jacobian(piece, x[0], bare=True), exact - torch.eye(len(exact)), atol=1e-5)


def test_branches_alone_start_at_the_feature_that_reaches_them():
    model, x = tiny("vit_digits")
    layer = survey(model, x)[1]
    attention, mlp = branch_pieces(model, layer)
    assert (attention.kind, mlp.kind) == ("attention", "mlp")
    start, added = attention.trace(x)
    after, more = mlp.trace(x)
    assert torch.allclose(start + added, after, atol=1e-6)
    assert torch.allclose(after + more, layer.block.module(start), atol=1e-5)


def test_a_stretch_has_what_lies_between_its_blocks():
    model, x = tiny("pvtv2_b0_32")
    layers = survey(model, x)
    assert [layer.joined for layer in layers[:4]] == [False, True, False, True]  # stages are joined by an embedding
    start, out = stretch_piece(model, layers, 1, 2).trace(x)
    assert start.shape[1:] == layers[1].inputs and out.shape[1:] == layers[2].outputs
    assert torch.equal(out, cut(model, x, None, layers[2])[1])


def test_cutting_leaves_the_model_as_it_was():
    model, x = tiny("vit_digits")
    before = model(x)
    cut(model, x, survey(model, x)[1], None)
    assert torch.equal(model(x), before) and not model.body.blocks[1]._forward_pre_hooks


class InPlace(nn.Module):
    """A block that writes to its own input."""

    def __init__(self):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        x.mul_(2.0)
        return x + self.attn(x)


class Once(torch.autograd.Function):
    """Its derivative has no derivative, which autograd says in two ways: a zero, or an error."""

    @staticmethod
    def forward(context, x):
        return x * 3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, gradient):
        return gradient * 3


class Cut(Once):
    @staticmethod
    def backward(context, gradient):
        return gradient.detach() * 3


class OnceBlock(InPlace):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def own(block):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(48, 4), block, nn.Linear(4, 3))
    return wrap(flat.eval().requires_grad_(False)), images(size=4)


def test_a_block_may_work_in_place():
    model, x = own(InPlace())
    (layer,) = survey(model, x)
    weight = model.body[2].attn.weight
    assert torch.allclose(dense_jacobian(block_piece(model, layer), x[0]), 2 * (torch.eye(4) + weight), atol=1e-6)


@pytest.mark.parametrize("function", [Once, Cut])
def test_what_cannot_be_differentiated_twice_is_said(function):
    model, x = own(OnceBlock(function))
    piece = block_piece(model, *survey(model, x))
    with pytest.raises(UserError, match="without a second derivative"):
        Jacobian(piece.trace, x, name=piece.name).check()


def test_compiled_models_and_lists_of_features_are_refused():
    model, x = tiny("vit_digits")
    model.body.blocks[0].compile()
    with pytest.raises(UserError, match="compiled model cannot be split into blocks"):
        survey(model, x)
    dense_net = wrap(timm.create_model("densenet121", num_classes=3).eval())
    with pytest.raises(UserError, match=r"of=network"):
        survey(dense_net, images())
