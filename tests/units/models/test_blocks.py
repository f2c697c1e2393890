"""Where blocks are, which way they attend, and that fused attention is overheard as the explicit one."""

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models import find_blocks, load_model, tap, wrap

KINDS = {
    "vit_digits": (["token"], False),
    "swin_tiny_patch2_window4_32": (["window"], False),
    "swin.arg": (["window"], False),
    "pvtv2_b0_32": (["reduced"], False),
    "pvt_tiny_32": (["reduced", "token"], False),
    "cvt_13_32": (["reduced"], False),
    "cait_s12_patch4_32": (["token", "class"], False),
    "convit_tiny_patch4_32": (["token"], False),
    "levit_128s_32": (["token", "reduced"], False),
    "coatnet_0_32": (["token"], False),
    "botnet50_cifar": (["token"], False),
    "mobilevit_s_32": (["window"], False),
    "ceit_tiny_32": (["token", "class"], False),
    "t2t_vit_t_14_32": (["token"], False),
    "xcit_nano_12_patch4_32": (["class"], True),
    "fan_tiny_hybrid_32": (["token", "class"], True),
    "rvt_tiny_plus_32": (["token"], False),
    "cauchy_vit_t2_32": (["token"], False),
    "covit_t2_32": ([], False),
    "resnet8_cifar": ([], False),
}
SHORTER = {
    "cait_s12_patch4_32": {"depth": 1}, "t2t_vit_t_14_32": {"depth": 1}, "fan_tiny_hybrid_32": {"depth": 1},
    "xcit_nano_12_patch4_32": {"depth": 1}, "coatnet_0_32": {"depths": (1, 1, 1, 1)},
}  # fmt: skip


def images(count=2):
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def listened(name):
    model = load_model(name, seed=0, **SHORTER.get(name, {}))
    for parameter in model.parameters():  # fresh weights attend nearly everywhere alike: sharpen that
        if parameter.ndim > 1:
            parameter.data *= 2
    with torch.no_grad(), tap(model) as taps:
        model(images())
    return taps


def explicit(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return (scores if attn_mask is None else scores + attn_mask).softmax(dim=-1) @ value


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_attention_is_named_and_is_the_explicit_softmax(name, monkeypatch):
    taps = listened(name)
    kinds, channels = KINDS[name]
    assert list(dict.fromkeys(taps.attention_kinds)) == kinds and bool(taps.channel_attention) == channels
    assert bool(taps.note) == (not kinds)
    monkeypatch.setattr(F, "scaled_dot_product_attention", explicit)
    again = listened(name)
    assert again.attention_names == taps.attention_names
    for fused, plain in zip(taps.attention, again.attention, strict=True):
        assert fused.shape == plain.shape and torch.allclose(fused, plain, atol=1e-5)


def test_the_gated_attention_of_convit_is_the_one_that_mixes():
    model = load_model("convit_tiny_patch4_32", seed=0)
    attention = find_blocks(model)[0].attending[0].module
    seen = {}
    attention.register_forward_hook(lambda module, args, output: seen.update(x=args[0], y=output))
    with torch.no_grad(), tap(model) as taps:
        model(images())
        v = attention.v(seen["x"]).unflatten(2, (attention.num_heads, -1)).transpose(1, 2)
        mixed = attention.proj((taps.attention[0] @ v).transpose(1, 2).flatten(2))
    assert torch.allclose(mixed, seen["y"], atol=1e-5)


def test_xcits_channel_attention_is_between_channels():
    taps = listened("xcit_nano_12_patch4_32")
    (weights,) = taps.channel_attention
    assert weights.shape == (2, 4, 32, 32) and torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
    assert taps.channel_attention_names == ["body.blocks.0"]
    assert {tuple(a.shape) for a in taps.attention} == {(2, 4, 1, 65)}


class Tokens(nn.Module):
    """N×3×32×32 to N×256×12."""

    def forward(self, x):
        return nn.functional.pixel_unshuffle(x, 2).flatten(2).transpose(1, 2)


class Strange(nn.Module):
    """A block of nobody's: known by its shape."""

    def __init__(self):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(12), nn.MultiheadAttention(12, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attn(y, y, y, need_weights=False)[0]


def test_blocks_of_others():
    own = nn.Sequential(nn.Conv2d(3, 12, 8, 8), nn.Flatten(2), nn.Linear(16, 12), Strange())
    (block,) = find_blocks(own)
    assert block.name == "3" and block.branches == () and [a.kind for a in block.attending] == ["token"]
    resnet = find_blocks(torchvision.models.resnet18())
    assert len(resnet) == 8 and all(len(block.branches) == 1 and not block.attending for block in resnet)
    vit = find_blocks(timm.create_model("vit_tiny_patch16_224", depth=2))
    assert [[branch.kind for branch in block.branches] for block in vit] == [["attention", "mlp"]] * 2


@pytest.mark.parametrize(
    "module, size",
    [
        (torchvision.models.resnet18, 32),
        (torchvision.models.resnet50, 32),
        (lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32), 32),
        (lambda: torchvision.models.SwinTransformer([2, 2], 8, [1, 2], [2, 2], [4, 4]), 32),
        (lambda: timm.create_model("resnet26", num_classes=3), 32),
        (lambda: nn.Sequential(Tokens(), nn.TransformerEncoderLayer(12, 2, 24, batch_first=True, norm_first=True)), 32),
        (lambda: nn.Sequential(Tokens(), nn.TransformerEncoderLayer(12, 2, 24, batch_first=True)), 32),
        (lambda: timm.create_model("resnetv2_50", num_classes=3), 32),
    ],
)
def test_branches_of_other_peoples_blocks_are_those_blocks(module, size):
    model, seen = wrap(module().eval()), {}
    for parameter in model.parameters():  # last norms start at zero in some: a block would pass for its identity
        if parameter.ndim == 1:
            parameter.data.add_(0.3)
    blocks = [block for block in find_blocks(model) if block.branches]
    for block in blocks:
        block.module.register_forward_hook(
            lambda module, args, output, name=block.name: seen.update({name: (args[0].clone(), output)})
        )
    with torch.no_grad():
        model(images())
        for block in blocks:
            x, output = seen[block.name]
            made = x
            for branch in block.branches:
                made = branch(made)
            assert torch.allclose(made, output, atol=1e-4), block.name
            assert made.shape != x.shape or (made - x).abs().max() > 1e-3
    assert blocks


def test_what_is_printed_of_taps_and_blocks_is_short():
    model = load_model("vit_digits", seed=0)
    with torch.no_grad(), tap(model) as taps:
        model(images())
    assert repr(taps) == "Taps(4 features, 4 attention maps (token))"
    assert repr(find_blocks(model)[1]) == "Block(body.blocks.1: Block, branches: attention, mlp, attention: token)"
    with pytest.raises(UserError, match="found str"):
        find_blocks("vit_digits")
