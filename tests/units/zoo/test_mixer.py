"""MLP-Mixer: sizes, timm's function with the same weights, blocks and knobs."""

import pytest
import torch
from family_checks import (
    assert_one_graph,
    assert_recomposes,
    on_meta,
    sizes,
    stirred,
)
from timm.models.mlp_mixer import MlpMixer

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.mixer import Mixer, MixerBlock

SMALL = {"image_size": 12, "width": 16, "depth": 2}


def test_parameter_counts():
    assert sizes("mixer", 10) == {
        "mixer.arg": 681_746,
        "mixer_tiny_patch4_32": 4_360_970,
        "mixer_s16_224": 18_020_394,
        "mixer_b16_224": 59_119_162,
    }
    assert sizes("mixer", 1000)["mixer_b16_224"] == 59_880_472


def test_it_is_timms_mixer():
    ours = stirred(Mixer(**SMALL))
    theirs = MlpMixer(num_classes=10, img_size=12, patch_size=4, num_blocks=2, embed_dim=16, mlp_ratio=(0.5, 4.0))
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(3, 3, 12, 12)
    assert torch.allclose(ours(x), theirs.eval()(x), atol=1e-5)


def test_the_class_token_is_one_token_more_and_read_by_the_head():
    model = stirred(Mixer(class_token=True, **SMALL))
    assert model.blocks[0].mlp_tokens.fc1.in_features == 10 and model.num_prefix_tokens == 1
    x = torch.rand(2, 3, 12, 12)
    tokens = torch.cat([model.cls_token.expand(2, 1, 16), model.stem(x)], dim=1)
    assert torch.allclose(model(x), model.head(model.norm(model.blocks(tokens))[:, 0]), atol=1e-6)


def test_a_block_is_its_branches():
    block = stirred(MixerBlock(tokens=9, width=8, token_hidden=5, hidden=12, drop_path=0.5))
    assert_recomposes(block, torch.randn(2, 9, 8), kinds=["token mlp", "mlp"])


def test_knobs_reach_the_network():
    model = on_meta("mixer_tiny_patch4_32", width=32, patch_size=8, token_ratio=2.0, mlp_ratio=1.0, activation="relu")
    block = model.blocks[0]
    assert block.mlp_tokens.fc1.weight.shape == (64, 16) and block.mlp_channels.fc1.weight.shape == (32, 32)
    assert isinstance(block.mlp_tokens.act, torch.nn.ReLU)


def test_it_compiles_to_one_graph():
    assert_one_graph(Mixer(class_token=True, **SMALL), torch.rand(2, 3, 12, 12))


@pytest.mark.parametrize(
    "options, words",
    [({"patch_size": 5}, "cannot be cut"), ({"token_ratio": 0.0}, "token_ratio"), ({"drop_path": -0.1}, "drop_path")],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("mixer_tiny_patch4_32", **options)
