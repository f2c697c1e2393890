"""PoolFormer: sizes, timm's function with the same weights, the stem's knobs."""

import pytest
import timm
import torch
from family_checks import assert_one_graph, on_meta, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.poolformer import poolformer

SMALL = {"widths": (8, 16, 24, 32), "depths": (1, 1, 1, 1)}


def test_parameter_counts():
    published = 11_407_306
    expected = {"poolformer.arg": 11_399_626, "poolformer_s12_32": published, "poolformer_s12_224": published}
    assert sizes("poolformer", 10) == expected
    assert sizes("poolformer", 1000)["poolformer_s12_224"] == 11_915_176


def test_it_is_timms_poolformer():
    ours = stirred(poolformer(patch_size=4))
    theirs = timm.create_model("poolformer_s12", num_classes=10).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, 3, 40, 40)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [3, 7])
@pytest.mark.parametrize("patch_size", [1, 2, 4])
def test_the_stem_divides_the_image_by_the_patch_size(kernel, patch_size):
    model = on_meta("poolformer_s12_32", patch_size=patch_size, stem_kernel=kernel, **SMALL)
    assert model.stem(torch.zeros(1, 3, 32, 32, device="meta")).shape == (1, 8, 32 // patch_size, 32 // patch_size)


def test_knobs_reach_the_network():
    model = on_meta("poolformer_s12_32", activation="silu", drop_path=0.2, **SMALL)
    assert isinstance(model.stages[0].blocks[0].mlp.act, torch.nn.SiLU)
    assert model.stages[3].blocks[0].drop_path1.drop_prob == pytest.approx(0.2)


def test_it_compiles_to_one_graph():
    assert_one_graph(poolformer(widths=(8, 16), depths=(1, 1)), torch.rand(2, 3, 16, 16))


@pytest.mark.parametrize(
    "options, words",
    [({"patch_size": 0}, "patch_size"), ({"depths": (2, 2)}, "depths has 2"), ({"drop_path": 1.5}, "drop_path")],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("poolformer_s12_32", **options)
