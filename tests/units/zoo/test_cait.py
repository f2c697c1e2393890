"""CaiT: sizes, scales that start at one, knobs."""

import pytest
import torch
from family_checks import assert_one_graph, on_meta, sizes

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.cait import cait


def test_parameter_counts():
    assert sizes("cait", 10)["cait_s12_patch4_32"] == 24_903_370
    assert sizes("cait", 1000) == {
        "cait_s12_patch4_32": 25_284_520,
        "cait_s12_patch16_224": 25_611_688,  # paper 2: 25.61 M
        "cait_xxs24_patch16_224": 11_956_264,
    }


def test_scales_start_at_one_but_for_the_published():
    ours = load_model("cait_s12_patch4_32", depth=1).body.blocks[0]
    assert (ours.gamma_1 == 1).all() and (ours.gamma_2 == 1).all()
    assert torch.allclose(load_model("cait_xxs24_patch16_224", depth=1).body.blocks[0].gamma_1, torch.tensor(1e-5))


def test_knobs_reach_the_network():
    model = on_meta(
        "cait_s12_patch4_32", width=48, heads=4, depth=3, class_depth=1, mlp_ratio=2.0, drop_path=0.1, activation="silu"
    )
    assert (len(model.blocks), len(model.blocks_token_only)) == (3, 1)
    assert model.blocks[0].mlp.fc1.weight.shape == (96, 48) and model.blocks[0].attn.num_heads == 4
    assert type(model.blocks[0].mlp.act).__name__ == "SiLU"
    assert [block.drop_path.drop_prob for block in model.blocks] == [0.1] * 3


def test_it_compiles_to_one_graph():
    assert_one_graph(cait(image_size=16, width=32, depth=1, class_depth=1, heads=4), torch.rand(2, 3, 16, 16))


@pytest.mark.parametrize(
    "options, words",
    [({"heads": 5}, "shared among 5 heads"), ({"patch_size": 5}, "cannot be cut"), ({"class_depth": 0}, "class_depth")],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("cait_s12_patch4_32", **options)
