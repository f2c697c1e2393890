"""Taps hand out exactly what the network computes: against explicit softmax, with gradients, cleanly."""

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models import find_blocks, load_model, tap, wrap
from hardtack.models.taps import attention_weights


@pytest.fixture
def model():
    return load_model("vit_digits", depth=2, class_token=True, seed=0)


def images(size=32, count=2):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def explicit(block, x):
    """softmax(q kᵀ / √d) of a ViT block, from its parameters alone."""
    attn = block.attn
    q, k, _ = F.linear(block.norm1(x), attn.qkv.weight, attn.qkv.bias).chunk(3, dim=-1)
    q, k = (t.unflatten(-1, (attn.num_heads, -1)).transpose(1, 2) for t in (q, k))
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)


@pytest.mark.parametrize("name", ["vit_digits", "timm:vit_tiny_patch16_224"])
def test_attention_is_the_explicit_softmax(name):
    model = load_model(name, image_size=32, patch_size=4, depth=3, seed=0)
    for parameter in model.parameters():  # fresh weights give nearly uniform attention: sharpen it
        parameter.data *= 3
    with torch.no_grad(), tap(model) as taps:
        model(images())
    assert taps.feature_names == [f"body.blocks.{i}" for i in range(3)] == taps.attention_names
    for index in (1, 2):
        weights = explicit(model.body.blocks[index], taps.features[index - 1])
        assert weights.max() > 2 / weights.shape[-1], "the check is void on uniform attention"
        assert torch.allclose(taps.attention[index], weights, atol=1e-5)


@pytest.mark.parametrize(
    "name, options",
    [
        ("timm:vit_tiny_patch16_224", {"qk_norm": True}),
        ("timm:eva02_tiny_patch14_224", {}),  # rotary positions
        ("timm:beit_base_patch16_224", {"embed_dim": 48, "num_heads": 4}),  # relative position bias
        ("timm:swin_tiny_patch4_window7_224", None),  # shifted-window masks
    ],
)
def test_fused_and_explicit_attention_of_timm_agree(name, options):
    small = {"image_size": 32, "patch_size": 4, "depth": 2}
    swin = {"image_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}
    maps = []
    for fused in (True, False):
        timm.layers.set_fused_attn(fused)
        try:
            model = load_model(name, seed=0, **(swin if options is None else small | options))
        finally:
            timm.layers.set_fused_attn(True)
        for parameter in model.parameters():
            parameter.data *= 2
        with torch.no_grad(), tap(model, features=False) as taps:
            model(images(model.image_size))
        maps.append(taps.attention)
        assert taps.features == []
    assert len(maps[0]) == len(maps[1]) == len(taps.attention_names) >= 2
    for fused, plain in zip(*maps, strict=True):
        assert torch.allclose(fused, plain, atol=1e-5)


def test_masks_scales_and_groups_of_fused_attention():
    q, k, v = (torch.randn(2, heads, 5, 8) for heads in (4, 2, 2))
    mask = torch.rand(5, 5) > 0.3
    mask.fill_diagonal_(True)
    for settings in (
        {"is_causal": True},
        {"attn_mask": mask},
        {"attn_mask": torch.randn(5, 5)},
        {"scale": 0.7},
    ):
        grouped = {**settings, "enable_gqa": True}
        mixed = attention_weights(q, k, **grouped) @ v.repeat_interleave(2, dim=1)
        assert torch.allclose(mixed, F.scaled_dot_product_attention(q, k, v, **grouped), atol=1e-5)


def test_channel_attention_is_not_handed_out_as_token_attention():
    model = load_model("timm:xcit_nano_12_p8_224", image_size=32, depth=2, seed=0)
    with torch.no_grad(), tap(model) as taps:
        model(images())
    assert {tuple(a.shape) for a in taps.attention} == {(2, 4, 1, 17)}  # the class attention alone


def test_torchs_own_attention():
    vit = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.5, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    own = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.Flatten(2), Turn(), encoder, Mean())
    for module in (vit, own):
        model = wrap(module.eval())
        with torch.no_grad(), tap(model) as taps:
            model(images())
        tokens = taps.features[0].shape[1]
        assert len(taps.features) == len(taps.attention) == 2
        assert taps.attention[1].shape == (2, 2, tokens, tokens)
        assert torch.allclose(taps.attention[1].sum(-1), torch.ones(()))
    state = torch.get_rng_state()
    plain = own.train()(images())
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    with tap(own):
        assert torch.equal(own(images()), plain), "tapping moved the random state"
    assert torch.equal(after, torch.get_rng_state())
    assert encoder.layers[0].self_attn.dropout == 0.5


class Turn(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def test_gradients_of_features_and_attention_reach_the_input(model):
    x = images().requires_grad_()
    with tap(model) as taps:
        loss = model(x).sum()
    for part in (taps.features[0].sum(), taps.attention[1].square().sum()):
        (gradient,) = torch.autograd.grad(part, x, retain_graph=True)
        assert gradient.isfinite().all() and gradient.abs().sum() > 0
    # the feature is the tensor the network went on with, so the loss has a gradient at it
    (at_feature,) = torch.autograd.grad(loss, taps.features[0])
    assert at_feature.shape == taps.features[0].shape
    assert taps.prefix_tokens == 1


def test_bf16_attention_is_computed_in_fp32(model):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), tap(model) as taps:
        model(images())
    assert taps.attention[0].dtype == torch.float32
    assert torch.allclose(taps.attention[0].sum(-1), torch.ones(()), atol=1e-5)


def test_each_pass_replaces_the_last_and_nesting_works(model):
    x = images()
    with torch.no_grad(), tap(model) as outer:
        model(x)
        first = outer.attention
        with tap(model, features=False) as inner:
            model(x.flip(0))
        assert all(torch.equal(a, b) for a, b in zip(inner.attention, outer.attention, strict=True))
        assert inner.features == [] and len(outer.features) == 2
        model(x)
        assert all(torch.equal(a, b) for a, b in zip(first, outer.attention, strict=True))
    assert not torch.equal(inner.attention[1], first[1])


def test_an_exception_leaves_no_hook_and_no_listener(model):
    broken = model.body.blocks[1].attn.proj
    removed = broken.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), tap(model), tap(model):
        model(images())
    removed.remove()
    assert not torch._C._is_torch_function_mode_enabled()
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    with torch.no_grad(), tap(model) as taps:
        model(images())
    assert len(taps.attention) == 2


def test_other_models_are_not_overheard(model):
    with torch.no_grad(), tap(model) as taps:
        model(images())
        load_model("vit_digits", depth=1)(images())
        torch.rand(1, 2, 3, 3).softmax(-1)
    assert len(taps.attention) == 2


def test_what_cannot_be_tapped_says_so(model):
    convolutional = load_model("resnet8_cifar")
    with tap(convolutional) as taps:
        convolutional(images())
    assert len(taps.features) == 3 and taps.attention == [] and "ResNet has no attention" in taps.note
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    with tap(plain) as taps:
        plain(images())
    assert taps.features == taps.attention == [] and "no blocks are known in Sequential" in taps.note
    with pytest.raises(UserError, match="compiled model cannot be tapped"), tap(torch.compile(model)):
        pass


@pytest.mark.parametrize(
    "name, shapes",
    [
        ("maxvit_rmlp_pico_rw_256", {(4096, 32), (1024, 64), (256, 128), (64, 256)}),
        ("gcvit_xxtiny", {(3136, 64), (784, 128), (196, 256), (49, 512)}),  # without what makes its global queries
        ("tiny_vit_5m_224", {(784, 128), (196, 160), (49, 320)}),
        ("nest_tiny", {(3136, 96), (784, 192), (196, 384)}),
    ],
)
def test_features_are_tokens_wherever_a_stranger_keeps_its_channels(name, shapes):
    model = wrap(timm.create_model(name, num_classes=10).eval(), num_classes=10)
    side = int(name[-3:]) if name[-3:].isdigit() else 224
    with torch.no_grad(), tap(model) as taps:
        model(images(side, 1))
    assert {tuple(feature.shape[1:]) for feature in taps.features} == shapes


def test_a_metaformer_attends_where_its_mixer_does():
    kinds = {}
    for name in ("caformer_s18", "poolformer_s12"):
        model = wrap(timm.create_model(name, num_classes=10).eval(), num_classes=10)
        with torch.no_grad(), tap(model) as taps:
            model(images(224, 1))
        branches = [block.branches[0].kind for block in find_blocks(model)]
        kinds[name] = [(kind, branches.count(kind)) for kind in dict.fromkeys(branches)], len(taps.attention)
    assert kinds == {
        "caformer_s18": ([("convolution", 6), ("attention", 12)], 12),
        "poolformer_s12": ([("pooling", 12)], 0),
    }
