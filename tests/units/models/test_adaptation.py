"""Weights of one size go into a network of another: kept, resized or left new, and every change is said."""

from __future__ import annotations

import json

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

import hardtack as ht
from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.evaluation.target import TargetConfig, complete, load_target
from hardtack.models import load_model, load_weights, save_weights
from hardtack.models.adaptation import (
    Adaptation,
    SpatialTensors,
    adapt_tensors,
    resize_kernel,
    resize_map,
    spatial_tensors,
)
from tiny_runs import MODEL, SIDE, tiny_recipe, write_data

TINY = {"depth": 2, "width": 32, "heads": 2}


def saved(model, path):
    save_weights(path, model)
    return path


def adapted(tmp_path, name, before, after, seed=1):
    """A model made with `before`, and what a model made with `after` becomes from its weights."""
    source = load_model(name, seed=0, **before)
    file = saved(source, tmp_path / "source.safetensors")
    return source, load_model(name, seed=seed, weights=file, adapt=True, **after)


# ---------------------------------------------------------------- the mathematics


def test_enlarged_patches_make_the_same_tokens():
    torch.manual_seed(0)
    kernel, patches = torch.randn(5, 3, 4, 4), torch.rand(7, 3, 4, 4)
    larger = F.interpolate(patches, size=(10, 10), mode="bicubic", antialias=True)
    before = torch.einsum("nchw,kchw->nk", patches, kernel)
    after = torch.einsum("nchw,kchw->nk", larger, resize_kernel(kernel, (10, 10)))
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 14, 32])
def test_a_patch_of_one_colour_keeps_its_token(size):
    kernel = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    resized = resize_kernel(kernel, (size, size))
    torch.testing.assert_close(resized.sum((2, 3)), kernel.sum((2, 3)), atol=1e-3, rtol=1e-4)


def test_a_shrunk_kernel_is_the_best_of_those_that_keep_the_sum():
    """No other kernel of the same sum answers smaller patches more nearly as the old one answered large ones."""
    generator = torch.Generator().manual_seed(0)
    kernel = torch.randn(1, 1, 8, 8, generator=generator, dtype=torch.float64)
    pixels = torch.eye(64, dtype=torch.float64).unflatten(1, (1, 8, 8))
    shrinking = F.interpolate(pixels, size=(4, 4), mode="bicubic", antialias=True).flatten(1)

    def error(small):
        return (shrinking @ small.flatten() - kernel.flatten()).square().sum()

    best = resize_kernel(kernel, (4, 4))
    for _ in range(20):
        way = torch.randn(1, 1, 4, 4, generator=generator, dtype=torch.float64)
        assert error(best + 0.01 * (way - way.mean())) > error(best)


def test_maps_keep_constants_and_slopes():
    torch.testing.assert_close(resize_map(torch.full((1, 2, 14, 14), 0.3), (8, 8)), torch.full((1, 2, 8, 8), 0.3))
    slope = torch.arange(8.0).expand(1, 1, 8, 8)
    twice = resize_map(slope, (16, 16))[0, 0, 0]
    torch.testing.assert_close(twice[3:-3], torch.arange(1.25, 6.0, 0.5))  # away from the edges
    assert resize_map(slope, (8, 8)) is slope


# ---------------------------------------------------------------- families


def test_the_same_size_is_kept_to_the_bit(tmp_path):
    source, model = adapted(tmp_path, "vit_digits", TINY, TINY)
    theirs = source.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in model.state_dict().items())
    assert model.fitted.summary() == f"{len(theirs)} tensors kept"


def test_a_vision_transformer_from_224_to_32_pixels(tmp_path):
    before = {**TINY, "image_size": 224, "patch_size": 16, "class_token": True, "num_classes": 10}
    after = {**before, "image_size": 32, "patch_size": 4, "num_classes": 7}
    source, model = adapted(tmp_path, "vit_digits", before, after)
    own = load_model("vit_digits", seed=1, **after).body
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 7)
    assert torch.equal(model.body.blocks[1].mlp.fc1.weight, source.body.blocks[1].mlp.fc1.weight)
    assert torch.equal(model.body.pos_embed[:, 0], source.body.pos_embed[:, 0])
    grid = source.body.pos_embed[:, 1:].transpose(1, 2).unflatten(2, (14, 14))
    expected = F.interpolate(grid, size=(8, 8), mode="bicubic", antialias=True).flatten(2).transpose(1, 2)
    assert torch.equal(model.body.pos_embed[:, 1:], expected)
    assert torch.equal(model.body.head.weight, own.head.weight), "the head is that of the seed"
    assert model.fitted.summary() == (
        "28 tensors kept; resized: pos_embed 14×14 → 8×8, patch_embed.proj.weight 16×16 → 4×4; "
        "new: head.weight, head.bias; trained at 224 pixels, now 32"
    )


@pytest.mark.parametrize("before, after", [(True, False), (False, True)])
def test_a_class_token_may_come_and_go(before, after, tmp_path):
    sizes = {**TINY, "image_size": 16, "patch_size": 4}
    source, model = adapted(tmp_path, "vit_digits", {**sizes, "class_token": before}, {**sizes, "class_token": after})
    theirs, ours = source.body.pos_embed, model.body.pos_embed
    assert torch.equal(theirs[:, int(before) :], ours[:, int(after) :])
    assert (model.fitted.fresh if after else model.fitted.dropped) == ("body.cls_token",)
    assert f"the position of the class token is {'new' if after else 'dropped'}" in model.fitted.summary()
    if after:
        own = load_model("vit_digits", seed=1, **sizes, class_token=True).body
        assert torch.equal(ours[:, 0], own.pos_embed[:, 0]) and torch.equal(model.body.cls_token, own.cls_token)


def test_only_the_last_layer_of_a_deep_head_is_new(tmp_path):
    before = {**TINY, "head_hidden": 16}
    source, model = adapted(tmp_path, "vit_digits", before, {**before, "num_classes": 3})
    assert model.fitted.fresh == ("body.head.2.weight", "body.head.2.bias")
    assert torch.equal(model.body.head[0].weight, source.body.head[0].weight)


def test_rvt_plus_tables_are_resized_over_queries_and_keys(tmp_path):
    sizes = {"widths": [24], "depths": [2], "heads": [2], "masked_blocks": 1, "patch_size": 4}
    source = load_model("rvt_small_plus_32", image_size=32, seed=0, **sizes)
    along = torch.arange(8.0)
    places = (along[:, None] + 10 * along).flatten()  # row + 10·column
    with torch.no_grad():
        source.body.transformers[0].blocks[0].attn.att_mask.copy_(places[:, None] - 3 * places)
    file = saved(source, tmp_path / "a.safetensors")
    model = load_model("rvt_small_plus_32", image_size=64, weights=file, adapt=True, **sizes)
    table = model.body.transformers[0].blocks[0].attn.att_mask[1].unflatten(0, (16, 16)).unflatten(2, (16, 16))
    # away from the edges token y of 16 lies at (y + 1/2)/2 − 1/2 of 8
    inner = (torch.arange(3.0, 13.0) + 0.5) / 2 - 0.5
    places = inner[:, None] + 10 * inner
    expected = places[:, :, None, None] - 3 * places
    torch.testing.assert_close(table[3:13, 3:13, 3:13, 3:13].detach(), expected, atol=1e-3, rtol=1e-4)
    assert "transformers.0.blocks.0.attn.att_mask 8×8 → 16×16" in model.fitted.summary()


@pytest.mark.parametrize(
    "name, options, before, after, table, size",
    [
        ("swin.arg", {"width": 12, "depths": [2, 1], "heads": [1, 2], "downscale": [2, 1]},
         {"window": 8}, {"window": 4}, "stages.0.1.attn.relative_bias", "15×15 → 7×7"),
        ("swin_tiny_patch2_window4_32", {"width": 12, "depths": [1, 1], "heads": [1, 2]},
         {"window": 4}, {"window": 8}, "layers.0.blocks.0.attn.relative_position_bias_table", "7×7 → 15×15"),
        ("botnet50_cifar", {"width": 8, "depths": [1, 1], "heads": 2},
         {"image_size": 32}, {"image_size": 64}, "blocks.1.attn.rows", "63 → 127"),
        ("botnet.arg", {"width": 8, "depths": [1, 1], "heads": 2},
         {"image_size": 32}, {"image_size": 16}, "blocks.1.attn.columns", "32 → 16"),
        ("coatnet_0_32", {"widths": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "head_width": 4},
         {"image_size": 32}, {"image_size": 64}, "relative_bias", "15×15 → 31×31"),
        ("levit_128s_32", {"widths": [32, 32, 32], "depths": [1, 1, 1], "heads": [1, 1, 1]},
         {"image_size": 32}, {"image_size": 64}, "stages.0.blocks.0.attn.attention_biases", "8×8 → 16×16"),
        ("pvt_tiny_32", {"widths": [8, 16, 32, 32], "depths": [1] * 4, "heads": [1, 1, 1, 1]},
         {"image_size": 32}, {"image_size": 64}, "stages.3.pos_embed", "2×2 → 4×4"),
        ("cct_7_3x1_32", {"width": 32, "depth": 1, "heads": 2},
         {"image_size": 32}, {"image_size": 16}, "pos_embed", "16×16 → 8×8"),
    ],
)  # fmt: skip
def test_constant_tables_stay_constant(name, options, before, after, table, size):
    """Every family's table, filled with one number, holds that number in the other size too."""
    source = {k: v.clone() for k, v in load_model(name, seed=0, **options, **before).body.state_dict().items()}
    filled = [key for key in source if key.endswith(table.rpartition(".")[2])]
    for key in filled:
        source[key].fill_(0.25)
    model = load_model(name, seed=1, **options, **after)
    state, fitted = adapt_tensors(source, model.body.state_dict(), spatial_tensors(model.body))
    assert any(key.endswith(table) and change == size for key, change in fitted.resized.items()), fitted.resized
    for key in filled:
        torch.testing.assert_close(state[key], torch.full_like(state[key], 0.25))
    model.body.load_state_dict(state)
    assert model(torch.rand(1, 3, model.image_size, model.image_size)).isfinite().all()


def test_offsets_without_sign_keep_their_centre():
    """A table that grows with distance, LeViT's way: offset 0 stays 0, and the slope is halved away from the edge."""
    along = torch.arange(8.0)
    theirs = {"attention_biases": (along[:, None] + along).flatten()[None]}
    state, _ = adapt_tensors(theirs, {"attention_biases": torch.zeros(1, 256)}, SpatialTensors())
    table = state["attention_biases"].unflatten(1, (16, 16))[0]
    assert 0 <= table[0, 0] < 0.5
    torch.testing.assert_close(table, table.T)
    torch.testing.assert_close(table[6:10, 7].diff(), torch.full((3,), 15 / 31), atol=1e-3, rtol=1e-3)


def test_computed_positions_are_computed_anew(tmp_path):
    sizes = {"width": 32, "depth": 1, "heads": 2, "token_width": 16}
    _, model = adapted(tmp_path, "t2t_vit_t_14_32", {**sizes, "image_size": 32}, {**sizes, "image_size": 64})
    own = load_model("t2t_vit_t_14_32", image_size=64, **sizes)
    assert torch.equal(model.body.pos_embed, own.body.pos_embed)
    assert "pos_embed 8×8 → 16×16 (computed)" in model.fitted.summary()


XCIT = {"width": 64, "depth": 1, "class_depth": 1, "heads": 2}


@pytest.mark.parametrize("patch", [8, 4, 2])
def test_xcit_changes_its_strides_alone(patch, tmp_path):
    before = {**XCIT, "patch_size": 16, "image_size": 64}
    source, model = adapted(tmp_path, "xcit_nano_12_patch16_224", before, {**before, "patch_size": patch})
    theirs = source.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in model.state_dict().items())
    assert model.body.patch_size == patch
    assert model.fitted.summary() == (
        f"{len(theirs)} tensors kept; the stem's strides changed, its weights did not: patches of 16 → {patch} pixels"
    )


def test_a_change_that_no_shape_shows_is_said(tmp_path):
    _, model = adapted(tmp_path, "vit_digits", TINY, {**TINY, "heads": 4, "drop_path": 0.2})
    assert model.fitted.notes == ("heads 2 → 4",)


def test_rvt_may_get_its_tables_later(tmp_path):
    sizes = {"widths": [24], "depths": [2], "heads": [2]}
    _, model = adapted(tmp_path, "rvt_small_32", sizes, {**sizes, "masked_blocks": 1})
    own = load_model("rvt_small_32", seed=1, masked_blocks=1, **sizes).body.transformers[0].blocks[0].attn
    assert torch.equal(model.body.transformers[0].blocks[0].attn.att_mask, own.att_mask)
    summary = model.fitted.summary()
    assert summary.endswith("; new: transformers.0.blocks.0.attn.att_mask; masked_blocks 0 → 1")
    with pytest.raises(UserError, match=r"unexpected: transformers\.0\.blocks\.0\.attn\.att_mask"):
        adapted(tmp_path, "rvt_small_32", {**sizes, "masked_blocks": 1}, sizes)


@pytest.mark.parametrize(
    "name, options, before, after, kernel, change",
    [
        ("mixer_tiny_patch4_32", {"width": 16, "depth": 1}, {"patch_size": 4, "image_size": 16},
         {"patch_size": 1, "image_size": 4}, "stem.proj.weight", "4×4 → 1×1"),
        ("rvt_small_plus_224", {"widths": [24], "depths": [1], "heads": [2], "masked_blocks": 1},
         {}, {"patch_size": 4, "image_size": 32}, "patch_embed.proj.3.weight", "4×4 → 1×1"),
        ("fan_tiny_hybrid_224", {"width": 16, "depth": 1, "stem_depths": [1, 1], "class_depth": 1, "heads": 2},
         {}, {"patch_size": 4, "stem_patch": 2}, "patch_embed.proj.weight", "2×2 → 1×1"),
        ("ceit_tiny_32", {"width": 16, "depth": 1, "heads": 2, "stem_width": 4},
         {"patch_size": 2}, {"patch_size": 1}, "patch_embed.weight", "2×2 → 1×1"),
        ("timm:vit_tiny_patch16_224", {"depth": 1}, {"patch_size": 4, "image_size": 32},
         {"patch_size": 1, "image_size": 8}, "patch_embed.proj.weight", "4×4 → 1×1"),
    ],
)  # fmt: skip
def test_patches_of_one_pixel_are_patches(name, options, before, after, kernel, change, tmp_path):
    _, model = adapted(tmp_path, name, {**options, **before}, {**options, **after})
    assert model.fitted.resized[f"body.{kernel}"] == change


def test_what_distillation_added_is_dropped_and_said(tmp_path):
    theirs = timm.create_model("deit_tiny_distilled_patch16_224", pretrained=False, depth=1)
    torch.save({"model": theirs.state_dict()}, tmp_path / "distilled.pth")
    model = load_model("deit_tiny_patch16_224", weights=tmp_path / "distilled.pth", adapt=True, depth=1, num_classes=5)
    assert torch.equal(model.body.pos_embed[:, 0], theirs.pos_embed[:, 0])
    assert torch.equal(model.body.pos_embed[:, 1:], theirs.pos_embed[:, 2:])
    assert "dropped: dist_token, head_dist.weight, head_dist.bias" in model.fitted.summary()


def test_timms_networks_are_adapted_alike(tmp_path):
    name, options = "timm:vit_tiny_patch16_224", {"depth": 1}
    source = load_model(name, image_size=64, num_classes=5, seed=0, **options)
    file = saved(source, tmp_path / "a.safetensors")
    model = load_model(name, weights=file, adapt=True, image_size=32, patch_size=4, num_classes=3, **options)
    assert set(model.fitted.resized.values()) == {"4×4 → 8×8", "16×16 → 4×4"}
    assert model.fitted.fresh == ("body.head.weight", "body.head.bias")


# ---------------------------------------------------------------- what is refused


def test_without_adapt_the_error_names_the_way(tmp_path):
    file = saved(load_model("vit_digits", seed=0, **TINY), tmp_path / "a.safetensors")
    with pytest.raises(
        UserError, match=r"of another shape: .*; with model.adapt=true \(Python: adapt=True\)"
    ) as caught:
        load_model("vit_digits", weights=file, image_size=64, **TINY)
    assert "resized: pos_embed 4×4 → 8×8" in str(caught.value)
    with pytest.raises(UserError, match="missing") as caught:
        load_model("vit_digits", weights=file, **{**TINY, "depth": 3})
    assert "adapt=" not in str(caught.value), "surgery could not help either"


def test_what_cannot_be_fitted_is_named_and_nothing_is_loaded(tmp_path):
    file = saved(load_model("vit_digits", seed=0, **TINY), tmp_path / "a.safetensors")
    model = load_model("vit_digits", seed=1, depth=3, width=32, heads=2, mlp_ratio=2, image_size=64)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(UserError) as caught:
        load_weights(model, file, adapt=True, strict=False)
    message = str(caught.value)
    assert "(of vit_digits) cannot be adapted" in message
    assert "12 missing: blocks.2.norm1.weight" in message
    assert "blocks.0.mlp.fc1.weight (128×32 there, 64×32 in the model)" in message
    assert "another architecture" not in message
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    with pytest.raises(UserError, match=r"unexpected: blocks\.1"):
        load_model("vit_digits", weights=file, adapt=True, **{**TINY, "depth": 1})


def test_another_architecture_is_refused(tmp_path):
    file = saved(load_model("resnet18_cifar", seed=0), tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=r"\(of resnet18_cifar\) cannot be adapted.*so this is another architecture"):
        load_model("vit_digits", weights=file, adapt=True)


def test_tables_that_are_no_squares_are_refused():
    with pytest.raises(UserError, match=r"pos_embed \(1×12×4 there, 1×16×4 in the model\)"):
        adapt_tensors({"pos_embed": torch.zeros(1, 12, 4)}, {"pos_embed": torch.zeros(1, 16, 4)}, SpatialTensors())


def test_adapt_without_weights_is_a_mistake():
    with pytest.raises(UserError, match="give weights=FILE"):
        load_model("vit_digits", adapt=True)


def test_kernels_that_overlap_are_not_patches():
    model = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1))
    assert spatial_tensors(model).patches == {"0.weight"}


def test_summary_says_blocks_alike_once():
    tables = {f"body.blocks.{i}.attn.relative_bias": "13×13 → 7×7" for i in range(12)}
    fitted = Adaptation(kept=("a",), resized=tables, dropped=("body.cls_token",))
    assert fitted.summary() == (
        "1 tensor kept; resized: blocks.*.attn.relative_bias 13×13 → 7×7 (12 of them); dropped: cls_token"
    )


# ---------------------------------------------------------------- runs


def test_a_run_starts_from_a_run_of_another_size(tmp_path, capsys):
    """A run folder is a start too: the account is printed once and stays in the run's metrics."""
    data = write_data(tmp_path / "data.npz")
    options = {**MODEL["options"], "patch_size": 2}
    source = load_model("vit_digits", image_size=2 * SIDE, num_classes=9, mean=0.3, std=0.2, seed=0, **options)
    save_weights(tmp_path / "first" / "checkpoints" / "best.safetensors", source)
    model = {**MODEL, "weights": str(tmp_path / "first"), "adapt": True}
    short = {"epochs": 1, "batch_size": 6, "log_every": 2}
    recipe = tiny_recipe(tmp_path / "second", data, model=model, objective="standard", train=short)
    folder = ht.train(recipe)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("resized: pos_embed 8×8 → 2×2, patch_embed.proj.weight 2×2 → 4×4; new: head.weight") == 1
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["adapted"][:20] for line in lines if line["kind"] == "start"] == ["27 tensors kept; res"]
    trained = ht.load_run(folder)
    assert trained.architecture["mean"] == [0.3] * 3, "the file's normalisation"
    assert trained.fitted is None and trained.num_classes == 4


def test_a_new_head_is_no_trained_model(tmp_path):
    file = saved(load_model("vit_digits", image_size=SIDE, seed=0, **TINY), tmp_path / "a.safetensors")
    data = write_data(tmp_path / "data.npz")
    asked = {"name": "vit_digits", "weights": str(file), "num_classes": 4, "image_size": SIDE, "options": TINY}
    words = {"model": {**asked, "adapt": True}, "data": {"name": f"npz:{data}"}}
    target = load_target(None, build(TargetConfig, complete(None, words)))
    assert [flag["code"] for flag in target.provenance.flags] == ["untrained"]


def test_a_head_of_another_width_is_no_new_head():
    """Only the number of classes may differ: a layer that reads other features was not trained for this network."""
    theirs, own = {"head.weight": torch.rand(5, 8)}, {"head.weight": torch.rand(7, 6)}
    with pytest.raises(UserError, match=r"head\.weight"):
        adapt_tensors(theirs, own, SpatialTensors(num_classes=7))


def test_a_tied_tensor_arrives_under_either_name():
    shared = torch.zeros(3, 4)
    wanted = {"embedding.weight": shared, "decoder.weight": shared}
    state, fitted = adapt_tensors({"decoder.weight": torch.ones(3, 4)}, wanted, SpatialTensors())
    assert list(state) == list(fitted.kept) == ["decoder.weight"] and not fitted.fresh
