"""PVTv2: sizes, timm's function with the same weights, the stem's stride, the keys that remain."""

import pytest
import timm
import torch
from family_checks import assert_one_graph, on_meta, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model, tap
from hardtack.models.zoo.pvtv2 import pvtv2

SMALL = {"widths": (8, 16, 20, 16), "depths": (1, 1, 1, 1), "mlp_ratios": (2.0, 2.0, 2.0, 2.0)}


def test_parameter_counts():
    assert sizes("pvtv2", 10) == {
        "pvtv2.arg": 12_406_474,
        "pvtv2_b0_32": 3_009_962,
        "pvtv2_b1_32": 11_893_578,
        "pvtv2_b0_224": 3_412_330,
        "pvtv2_b1_224": 13_501_130,
        "pvtv2_b2_224": 24_854_986,
    }
    published = {"pvtv2_b0_224": 3_666_760, "pvtv2_b1_224": 14_009_000, "pvtv2_b2_224": 25_362_856}
    assert sizes("pvtv2", 1000).items() >= published.items()


def test_it_is_timms_pvt():
    ours = stirred(pvtv2(linear=True))
    theirs = timm.create_model("pvt_v2_b0", num_classes=10, linear=True).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("patch_size", [1, 2, 4])
def test_patch_size_is_the_stride_and_the_kernel_stays(patch_size):
    model = on_meta("pvtv2.arg", patch_size=patch_size)
    side = 32 // patch_size
    assert model.patch_embed(torch.zeros(1, 3, 32, 32, device="meta")).shape == (1, side, side, 64)
    assert model.patch_embed.proj.weight.shape == (64, 3, 7, 7)


@pytest.mark.parametrize("name, keys", [("pvtv2_b0_32", [16, 16, 16, 4]), ("pvtv2.arg", [49, 49, 49, 49])])
def test_how_many_keys_remain(name, keys):
    model = load_model(name, **SMALL, heads=(1, 2, 2, 4))
    with torch.no_grad(), tap(model) as taps:
        model(torch.rand(1, 3, 32, 32))
    assert [weights.shape[-1] for weights in taps.attention] == keys


def test_the_activation_reaches_mlps_and_pooled_keys():
    model = on_meta("pvtv2.arg", activation="silu")
    block = model.stages[0].blocks[0]
    assert isinstance(block.mlp.act, torch.nn.SiLU) and isinstance(block.attn.act, torch.nn.SiLU)


def test_it_compiles_to_one_graph():
    model = pvtv2(widths=(8, 16), depths=(1, 1), heads=(1, 2), mlp_ratios=(2.0, 2.0), reductions=(2, 1))
    assert_one_graph(model, torch.rand(2, 3, 32, 32))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"patch_size": 7}, "7×7 stem"),
        ({"heads": (3, 2, 5, 8)}, "shared among 3 heads"),
        ({"depths": (2, 2)}, "depths has 2"),
        ({"reductions": (0, 1, 1, 1)}, "reductions must be at least 1"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("pvtv2_b0_32", **options)
