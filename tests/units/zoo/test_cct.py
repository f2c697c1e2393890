"""CCT: sizes, sequence pooling written out, the norm on the stream, knobs."""

import pytest
import torch
import torch.nn.functional as F
from family_checks import assert_one_graph, assert_recomposes, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.zoo.cct import Block, CompactTransformer, SequencePooling, Tokenizer, grid_of


def tiny_block(**options):
    torch.manual_seed(0)
    given = {"drop_path": 0.0, "attention_dropout": 0.0, "activation": "gelu", **options}
    return stirred(Block(width=16, heads=2, hidden=24, **given))


def test_parameter_counts():
    small = {"cct.arg": 3_760_139, "cct_7_3x1_32": 3_760_139}  # paper 3 prints 3.76
    assert sizes("cct", 10).items() >= small.items()
    assert sizes("cct", 1000)["cct_14_7x2_224"] == 22_367_273  # published as 22.36 M


def test_sequence_pooling_is_a_softmax_over_tokens():
    pool = stirred(SequencePooling(width=6))
    x = torch.randn(3, 5, 6)
    weight, bias = pool.score.weight[0], pool.score.bias[0]
    for image, pooled in zip(x, pool(x), strict=True):
        scores = [(weight * token).sum() + bias for token in image]
        total = sum(score.exp() for score in scores)
        literal = sum(score.exp() / total * token for score, token in zip(scores, image, strict=True))
        assert torch.allclose(pooled, literal, atol=1e-6)


def test_the_second_norm_is_applied_to_the_stream():
    block = tiny_block()
    x = torch.randn(2, 7, 16)
    attended = x + block.attn(block.norm1(x))
    stream = F.layer_norm(attended, (16,), block.norm2.weight, block.norm2.bias)
    assert torch.allclose(block(x), stream + block.mlp(stream), atol=1e-6)
    pre_norm = attended + block.mlp(stream)  # what a ViT would do
    assert (block(x) - pre_norm).abs().max() > 0.1
    assert_recomposes(block, x, kinds=["attention", "mlp"])


def test_attention_weights_are_dropped_in_training_only():
    block = tiny_block(attention_dropout=0.5)
    x = torch.randn(2, 7, 16)
    assert torch.equal(block(x), tiny_block()(x))
    draws = torch.stack([block.train().attend(x) for _ in range(500)])
    assert draws.std(0).min() > 0
    assert (draws.mean(0) - block.eval().attend(x)).abs().max() < 0.2


@pytest.mark.parametrize("size, convolutions, kernel_size, stride", [(32, 1, 3, 1), (57, 2, 7, 2), (30, 2, 4, 1)])
def test_the_grid_is_what_the_tokenizer_makes(size, convolutions, kernel_size, stride):
    plan = {"convolutions": convolutions, "kernel_size": kernel_size, "stride": stride}
    tokens = Tokenizer(width=4, **plan)(torch.rand(1, 3, size, size))
    assert tokens.shape == (1, grid_of(size, **plan) ** 2, 4)


def test_knobs_reach_the_network():
    model = make_body("cct_7_3x1_32", num_classes=7, image_size=48, options={"activation": "relu", "depth": 3}).module
    assert model.pos_embed.shape == (1, 24**2, 256) and model.head.out_features == 7
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.05, 0.1]
    assert isinstance(model.blocks[0].mlp.act, torch.nn.ReLU)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"heads": 3}, "shared among 3 heads"),
        ({"attention_dropout": 1.0}, "attention_dropout"),
        ({"convolutions": 0}, "convolutions"),
        ({"convolutions": 5}, "too small"),
        ({"mlp_ratio": 0.0}, "hidden"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("cct_7_3x1_32", num_classes=10, options=options)


@pytest.mark.parametrize("training", [False, True])
def test_one_graph(training):
    torch.manual_seed(0)
    model = CompactTransformer(image_size=8, width=16, depth=1, heads=2)
    x = torch.rand(2, 3, 8, 8)
    if not training:
        assert_one_graph(model, x)
        return
    torch.compile(model, fullgraph=True, backend="eager")(x).square().sum().backward()  # with dropout
    assert all(p.grad.isfinite().all() for p in model.parameters())
