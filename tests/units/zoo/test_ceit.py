"""CeiT: sizes, the local feed-forward by a literal loop, the class tokens of all layers, knobs."""

import pytest
import torch
import torch.nn.functional as F
from family_checks import assert_one_graph, assert_recomposes, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.ceit import ClassBlock, ConvolutionEnhancedTransformer, LastAttention, LocalFeedForward
from hardtack.models.zoo.layers import Attention
from hardtack.models.zoo.vit import Block


def tiny(**options):
    torch.manual_seed(0)
    small = {"image_size": 16, "patch_size": 2, "stem_width": 4, "width": 12, "depth": 3, "heads": 2, "mlp_ratio": 2.0}
    return stirred(ConvolutionEnhancedTransformer(**{**small, **options}))


def test_parameter_counts():
    small = {"ceit.arg": 5_562_634, "ceit_tiny_32": 5_985_354}  # paper 3 prints 5.56
    assert sizes("ceit", 10).items() >= small.items()
    large = {"ceit_tiny_224": 6_356_904, "ceit_small_224": 24_204_840}  # published as 6.4 and 24.2 M
    assert sizes("ceit", 1000).items() >= large.items()


@pytest.mark.parametrize("repeat_class", [False, True])
@pytest.mark.parametrize("last_activation", [False, True])
def test_local_feed_forward_by_a_loop(repeat_class, last_activation):
    torch.manual_seed(0)
    layer = LocalFeedForward(width=4, hidden=6, grid=3, repeat_class=repeat_class, last_activation=last_activation)
    layer = stirred(layer)

    def norm(values, batch_norm):
        mean, variance = batch_norm.running_mean, batch_norm.running_var
        return (values - mean) / (variance + batch_norm.eps).sqrt() * batch_norm.weight + batch_norm.bias

    x = torch.randn(1, 10, 4)
    convolution, batch_norm, _ = layer.up
    wide = F.gelu(norm(x[0, 1:] @ convolution.weight[:, :, 0, 0].T + convolution.bias, batch_norm)).view(3, 3, 6)
    depthwise, batch_norm, _ = layer.depthwise
    mixed = depthwise.bias.repeat(3, 3, 1)
    for row in range(3):
        for column in range(3):
            for near in range(max(0, row - 1), min(3, row + 2)):
                for beside in range(max(0, column - 1), min(3, column + 2)):
                    tap = depthwise.weight[:, 0, near - row + 1, beside - column + 1]
                    mixed[row, column] += tap * wide[near, beside]
    convolution, batch_norm_2 = layer.down[:2]
    narrow = F.gelu(norm(mixed, batch_norm)) @ convolution.weight[:, :, 0, 0].T + convolution.bias
    narrow = norm(narrow, batch_norm_2).view(9, 4)
    narrow = F.gelu(narrow) if last_activation else narrow
    assert torch.allclose(layer(x)[0, 1:], narrow, atol=1e-5)
    assert torch.equal(layer(x)[0, 0], x[0, 0] if repeat_class else torch.zeros(4))


def test_the_feed_forward_neither_hears_nor_changes_the_class_token():
    torch.manual_seed(0)
    feed_forward = LocalFeedForward(width=12, hidden=8, grid=3, repeat_class=False)
    block = stirred(Block(Attention(width=12, heads=2), feed_forward, width=12))
    x = torch.randn(2, 10, 12)
    changed = torch.cat([torch.randn(2, 1, 12), x[:, 1:]], dim=1)
    assert torch.equal(block.feed(x), block.feed(changed)) and not block.feed(x)[:, 0].any()
    assert_recomposes(block, x, kinds=["attention", "mlp"])


def test_attention_of_the_last_is_the_last_row_of_attention():
    torch.manual_seed(0)
    last, every = stirred(LastAttention(width=12, heads=3)), Attention(width=12, heads=3)
    every.qkv.weight.data = torch.cat([last.q.weight, last.kv.weight]).data
    every.qkv.bias.data = torch.cat([last.q.bias, last.kv.bias]).data
    every.proj = last.proj
    x = torch.randn(2, 5, 12)
    assert torch.allclose(last(x), every(x)[:, -1:], atol=1e-6)


def test_the_class_block_reads_the_class_tokens_of_all_layers():
    model = tiny()
    kept = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, out: kept.append(out[:, 0]))
    heard = []
    model.class_blocks[0].register_forward_pre_hook(lambda module, args: heard.append(args[0]))
    model(torch.rand(2, 3, 16, 16))
    assert torch.equal(heard[0], torch.stack(kept, dim=1) + model.layer_embed)
    block = stirred(ClassBlock(width=12, heads=2, hidden=16))
    assert_recomposes(block, torch.randn(2, 3, 12), kinds=["attention", "mlp"])
    assert block(heard[0]).shape == (2, 1, 12)


@pytest.mark.parametrize("name, grid", [("ceit_tiny_32", 8), ("ceit.arg", 2), ("ceit_tiny_224", 14)])
def test_grids(name, grid):
    with torch.device("meta"), uninitialised():
        assert make_body(name, num_classes=10, options={}).module.pos_embed.shape[1] == grid**2 + 1


def test_knobs_reach_the_network():
    model = tiny(layer_class_attention=False, activation="relu", drop_path=0.2, stem_stride=1)
    assert len(model.class_blocks) == 0 and model.pos_embed.shape[1] == 17
    assert not any(isinstance(module, torch.nn.GELU) for module in model.modules())
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.1, 0.2]
    assert model(torch.rand(1, 3, 16, 16)).shape == (1, 10)


@pytest.mark.parametrize(
    "options, words",
    [({"patch_size": 3}, "patches of 3"), ({"heads": 5}, "5 heads"), ({"stem_width": 0}, "stem_width")],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("ceit_tiny_32", num_classes=10, options=options)


def test_one_graph():
    assert_one_graph(tiny(depth=1), torch.rand(2, 3, 16, 16))
