"""ConViT: sizes, timm's function with the same weights, positions that move with the network."""

import pytest
import timm
import torch
from family_checks import assert_one_graph, on_meta, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.convit import convit

SMALL = {"image_size": 16, "depth": 3, "heads": 2}


def test_parameter_counts():
    assert sizes("convit", 10)["convit_tiny_patch4_32"] == 5_355_858
    assert sizes("convit", 1000) == {
        "convit_tiny_patch4_32": 5_546_928,
        "convit_tiny_patch16_224": 5_710_512,
        "convit_small_patch16_224": 27_777_322,
        "convit_base_patch16_224": 86_540_040,
    }


def test_it_is_timms_convit():
    ours = stirred(convit(**SMALL))
    sizes = {"img_size": 16, "patch_size": 4, "depth": 3, "num_heads": 2, "local_up_to_layer": 1}
    theirs = timm.create_model("convit_tiny", num_classes=10, **sizes).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, 3, 16, 16)
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


def test_relative_positions_are_the_offsets():
    rows = convit(**SMALL).blocks[0].attn.rel_indices[0]
    for i in range(16):
        for j in range(16):
            right, down = j % 4 - i % 4, j // 4 - i // 4
            assert rows[i, j].tolist() == [right, down, right**2 + down**2]


def test_positions_follow_the_network_after_a_first_pass():
    model = convit(**SMALL).eval()
    x = torch.rand(1, 3, 16, 16)
    first = model(x)
    moved = model.double()(x.double())  # in timm the positions stay what they were
    assert torch.allclose(first.double(), moved, atol=1e-5)


def test_the_class_token_joins_for_the_plain_blocks():
    model, tokens = on_meta("convit_tiny_patch4_32", depth=4, plain_depth=1), []
    for block in model.blocks:
        block.register_forward_hook(lambda block, args, out: tokens.append(out.shape[1]))
    model(torch.zeros(1, 3, 32, 32, device="meta"))
    assert tokens == [64, 64, 64, 65]
    assert [type(block.attn).__name__ for block in model.blocks] == ["GPSA", "GPSA", "GPSA", "MHSA"]


def test_the_activation_reaches_the_mlps():
    model = on_meta("convit_tiny_patch4_32", depth=2, activation="relu")
    assert all(isinstance(block.mlp.act, torch.nn.ReLU) for block in model.blocks)


def test_it_compiles_to_one_graph():
    assert_one_graph(convit(image_size=16, depth=2, plain_depth=1, heads=2), torch.rand(2, 3, 16, 16))


@pytest.mark.parametrize(
    "options, words",
    [({"depth": 1}, "2 of 1"), ({"patch_size": 5}, "cannot be cut"), ({"plain_depth": 0}, "plain_depth")],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("convit_tiny_patch4_32", **options)
