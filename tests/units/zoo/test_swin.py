"""Swin: sizes, shifted windows written out, timm's network under our knobs."""

import pytest
import timm
import torch
from family_checks import (
    assert_one_graph,
    assert_recomposes,
    on_meta,
    sizes,
    stirred,
)

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.swin import CompactSwin, PatchMerging, WindowBlock, from_windows, swin, to_windows


def small_block(*, side=6, window=3, shifted=True):
    options = {"width": 8, "heads": 2, "hidden": 12, "drop_path": 0.5, "activation": "gelu"}
    return stirred(WindowBlock(side=side, window=window, shifted=shifted, **options))


def test_parameter_counts():
    assert sizes("swin", 10) == {
        "swin.arg": 27_428_086,  # paper 3 prints 27.42
        "swin_tiny_patch2_window4_32": 27_505_108,
        "swin_tiny_patch4_window7_224": 27_527_044,
        "swin_small_patch4_window7_224": 48_844_948,
        "swin_base_patch4_window7_224": 86_753_474,
    }
    published = sizes("swin", 1000)
    assert published["swin_tiny_patch4_window7_224"] == 28_288_354
    assert published["swin_base_patch4_window7_224"] == 87_768_224


def test_windows_there_and_back():
    x = torch.arange(2 * 4 * 4).reshape(2, 4, 4, 1)
    windows = to_windows(x, 2)
    assert windows[1, :, 0].tolist() == [2, 3, 6, 7] and windows[4, :, 0].tolist() == [16, 17, 20, 21]
    assert torch.equal(from_windows(windows, 2, 4), x)


@pytest.mark.parametrize("side, window, shifted", [(6, 3, False), (6, 3, True), (8, 4, True), (4, 4, True)])
def test_attention_reaches_the_tokens_of_the_same_window(side, window, shifted):
    """Attention between all tokens, −∞ where their windows, shifted without wrapping round, differ."""
    block = small_block(side=side, window=window, shifted=shifted)
    shift = window // 2 if shifted and side > window else 0

    def window_of(row, column):
        return (row - shift) // window, (column - shift) // window

    tokens = [(row, column) for row in range(side) for column in range(side)]
    bias = torch.full((side**2, side**2), float("-inf"))
    for i, (row, column) in enumerate(tokens):
        for j, (down, right) in enumerate(tokens):
            if window_of(row, column) == window_of(down, right):
                entry = (row - down + window - 1) * (2 * window - 1) + column - right + window - 1
                bias[i, j] = block.attn.relative_bias[entry]
    x = torch.randn(2, side, side, 8)
    parts = block.attn.qkv(block.norm1(x).flatten(1, 2)).chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts)
    mixed = (q @ k.transpose(-2, -1) / 4**0.5 + bias).softmax(-1) @ v
    wanted = block.attn.proj(mixed.transpose(1, 2).flatten(2)).unflatten(1, (side, side))
    assert torch.allclose(block.attend(x), wanted, atol=1e-5)


def test_merging_is_linear_in_each_square():
    merge, x = stirred(PatchMerging(3, 5, factor=2)), torch.randn(2, 4, 6, 3)
    out = merge(x)
    assert out.shape == (2, 2, 3, 5)
    assert torch.allclose(out[1, 1, 2], merge.linear(x[1, 2:4, 4:6].flatten()), atol=1e-6)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_block_is_its_branches(shifted):
    assert_recomposes(small_block(shifted=shifted), torch.randn(2, 6, 6, 8), kinds=["attention", "mlp"])


def test_knobs_reach_timms_network():
    model = on_meta("swin_tiny_patch2_window4_32", activation="relu", patch_size=1, depths=(1, 1, 1, 1), window=8)
    block = model.layers[0].blocks[0]
    assert isinstance(block.mlp.act, torch.nn.ReLU) and block.window_size == (8, 8)
    assert model.patch_embed.grid_size == (32, 32)
    dropping = on_meta("swin_tiny_patch2_window4_32", drop_path=0.3).layers[3].blocks[1].drop_path2
    assert dropping.drop_prob == pytest.approx(0.3)
    plain = on_meta("swin_tiny_patch2_window4_32")
    assert not any(isinstance(module, timm.layers.DropPath) for module in plain.modules())


@pytest.mark.parametrize(
    "size, patch_size, window", [(256, 4, 7), (112, 4, 7), (48, 2, 4), (32, 2, 3), (40, 2, 4), (34, 2, 1)]
)
def test_sizes_that_timm_pads_are_taken(size, patch_size, window):
    model = swin(image_size=size, patch_size=patch_size, window=window).to("meta")
    assert model(torch.zeros(2, 3, size, size, device="meta")).shape == (2, 10)


@pytest.mark.parametrize("size, window", [(17, 4), (13, 3), (33, 8), (18, 2)])
def test_sizes_are_refused_only_where_timm_fails(size, window):
    """Before 1.0.31 timm fails on maps that become odd; ours is refused or equal to timm's, whichever is installed."""
    options = {"num_classes": 10, "patch_size": 1, "depths": (2, 2, 2), "embed_dim": 4, "num_heads": (1, 1, 1)}
    theirs = timm.create_model("swin_tiny_patch4_window7_224", img_size=size, window_size=window, **options)
    ours = {"image_size": size, "window": window, "patch_size": 1, "depths": (2, 2, 2), "width": 4, "heads": (1, 1, 1)}
    x = torch.rand(2, 3, size, size)
    try:
        expected = theirs.eval()(x)
    except RuntimeError:
        with pytest.raises(UserError, match="cannot cut"):
            swin(**ours)
        return
    model = swin(**ours).eval()
    model.load_state_dict(theirs.state_dict())
    assert torch.equal(model(x), expected)


def test_a_size_that_timm_cannot_pass_is_refused(monkeypatch):
    def fail(self, x):
        raise RuntimeError("shapes")

    monkeypatch.setattr(timm.models.swin_transformer.SwinTransformer, "forward", fail)
    with pytest.raises(UserError, match="stage 2 has a 9×9 map, which timm's Swin cannot cut"):
        load_model("swin_tiny_patch2_window4_32", image_size=34)


def test_maps_of_paper_3():
    model, maps = on_meta("swin.arg", depths=(1, 1, 1, 1)), []
    for stage in model.stages:
        stage.register_forward_hook(lambda stage, args, out: maps.append(out.shape[1]))
    model(torch.zeros(1, 3, 32, 32, device="meta"))
    assert maps == [16, 16, 8, 4]
    assert sum(p.numel() for p in on_meta("swin.arg", downscale=(1, 1, 2, 2)).parameters()) == 27_427_222


@pytest.mark.parametrize("make", [CompactSwin, swin])
def test_it_compiles_to_one_graph(make):
    scale = {"downscale": (2,)} if make is CompactSwin else {}
    assert_one_graph(make(image_size=16, width=8, depths=(2,), heads=(2,), **scale), torch.rand(2, 3, 16, 16))


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("swin_tiny_patch2_window4_32", {"image_size": 8}, "4×4 patches cannot be halved 3 times"),
        ("swin_tiny_patch2_window4_32", {"patch_size": 5}, "cannot be cut"),
        ("swin_tiny_patch2_window4_32", {"heads": (5, 6, 12, 24)}, "shared among 5 heads"),
        ("swin.arg", {"downscale": (2, 2)}, "downscale has 2"),
        ("swin.arg", {"image_size": 24}, "6×6 map cannot be cut"),
    ],
)
def test_impossible_knobs_are_refused(name, options, words):
    with pytest.raises(UserError, match=words):
        load_model(name, **options)
