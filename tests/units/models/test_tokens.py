"""The size of a patch follows from the tokens of a network, whatever its attributes are called."""

import re

import pytest
import torch
import torchvision
from torch import nn

from hardtack.attacks import Occlusion, PatchFool
from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import load_model, wrap
from hardtack.models.facts import known
from hardtack.models.tokens import Grid, default_patch_size, own_patch_size, usual_patch_size

PYRAMIDS = {
    "pvtv2_b0_32": {"widths": (8, 8, 8, 8), "depths": (1, 1, 1, 1), "heads": (1, 1, 1, 1)},
    "swin_tiny_patch2_window4_32": {"width": 8, "depths": (1, 1, 1, 1), "heads": (1, 1, 1, 1)},
    "mobilevit_s_32": {},
}


def images(height=32, width=None):
    return torch.rand(2, 3, height, width or height, generator=torch.Generator().manual_seed(0))


# ---------------------------------------------------------------- the table over the registry

# tokens of one size that is neither in the name nor the usual one
ONE_GRID = {"cct.arg": 2, "cct_7_3x1_32": 2, "ceit.arg": 16, "vitae.arg": 16, "levit.arg": 8, "vit_digits": 8}
COARSE = re.compile(r"(cauchy_vit_(l|m3)|covit_(l[12]|m5))_")  # paper 4's models with patches of 32 at 224 pixels


def expected(name):
    """The rule in the words of the papers: what the name says, else 16 pixels at 224 and 4 at 32."""
    said = re.search(r"patch(\d+)_", name)
    usual = 16 if name.endswith("_224") else 4
    if said and not name.startswith("swin"):  # a patch of Swin's name is a token of the first stage alone
        return int(said[1])
    return ONE_GRID.get(name, usual * 2 if COARSE.match(name) else usual)


@pytest.mark.parametrize("name", models.names())
def test_every_registered_model(name):
    facts = known()[name]  # tests/contracts/test_models.py measures this table again
    size = facts.patch_size or usual_patch_size((facts.image_size, facts.image_size))
    assert size == expected(name)
    assert facts.image_size % size == 0 and facts.image_size // size >= 2
    assert facts.attention == "none" or facts.patch_size is not None, "whatever attends has tokens"


# ---------------------------------------------------------------- measured on the network


@pytest.mark.parametrize("name", PYRAMIDS)
def test_pyramids_have_the_patches_of_the_stage_nearest_to_the_usual_size(name):
    model = load_model(name, num_classes=4, image_size=32, seed=0, **PYRAMIDS[name])
    assert own_patch_size(model, images()) == 4, "not the kernel of 7, the first stage's 2 or MobileViT's 2"
    settled, _ = Occlusion().settle(model, images())
    assert (settled.patch_size, settled.patches) == (4, 7)
    assert PatchFool(steps=1).settle(model, images())[0].patch_size == 4


@pytest.mark.parametrize(
    "options, size",
    [({}, 4), ({"patch_size": 8}, 8), ({"patch_size": 8, "stem_patch": 4}, 8)],
)
def test_a_convolutional_stem_does_not_change_the_tokens_of_fan(options, size):
    small = {"width": 16, "depth": 3, "heads": 2, "stem_depths": (1, 1), "class_depth": 1}
    model = load_model("fan_tiny_hybrid_32", num_classes=4, image_size=32, seed=0, **small, **options)
    assert own_patch_size(model, images()) == size


@pytest.mark.parametrize(
    "name, options, size",
    [
        ("timm:vit_tiny_patch16_224", {"patch_size": 8, "depth": 1}, 8),
        ("timm:swin_tiny_patch4_window7_224", {"patch_size": 2, "window_size": 4, "depths": [1, 1, 1, 1]}, 4),
        ("timm:pvt_v2_b0", {}, 4),
        ("timm:mobilevit_xxs", {}, 4),
        ("timm:resnet18", {}, None),
        ("timm:convnext_atto", {}, None),
    ],
)
def test_models_of_timm(name, options, size):
    model = load_model(name, num_classes=4, image_size=32, seed=0, **options)
    assert own_patch_size(model, images()) == size
    assert default_patch_size(model, images()) == (size or 4)


@pytest.mark.parametrize(
    "make, size",
    [
        (lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32), 8),
        (lambda: torchvision.models.SwinTransformer([2, 2], 8, [1, 1, 1], [2, 2, 2], [4, 4]), 4),
        (torchvision.models.resnet18, None),
    ],
)
def test_models_of_torchvision(make, size):
    assert own_patch_size(wrap(make(), image_size=32), images()) == size


class Mine(nn.Module):
    """Patches of 8 pixels and a class token; the attribute `patch_size` means something else."""

    patch_size = 5

    def __init__(self, dropped=0):
        super().__init__()
        self.embed, self.dropped = nn.Conv2d(3, 8, 8, stride=8), dropped
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5, batch_first=True) for _ in "ab")
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([tokens[:, :1] * 0, tokens[:, self.dropped :]], dim=1)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.head(tokens[:, 0])


def test_a_module_of_the_user_s_is_measured():
    model = wrap(Mine())
    assert own_patch_size(model, images()) == own_patch_size(model, images(64, 32)) == 8
    assert Occlusion().settle(model, images())[0].patches == 2


def test_tokens_without_a_grid_ask_for_the_size():
    model = wrap(Mine(dropped=3))
    with pytest.raises(UserError, match=r"tokens of Mine are not square patches of a 32×32 image.*patch_size=4$"):
        own_patch_size(model, images())
    assert Occlusion(patch_size=8).settle(model, images())[0].patches == 2


def test_a_network_without_known_blocks_is_not_run():
    assert own_patch_size(nn.Linear(3, 2), images()) is None
    assert [default_patch_size(nn.Linear(3, 2), images(side)) for side in (3, 32, 64, 128)] == [3, 4, 8, 16]


def test_measuring_changes_nothing_and_happens_once():
    passes = []
    model = nn.Sequential(nn.BatchNorm2d(3), Mine()).train()
    model[1].layers[0].eval()
    model.register_forward_hook(lambda *args: passes.append(len(args[1][0])))
    flags, buffers = [m.training for m in model.modules()], [b.clone() for b in model.buffers()]
    state = torch.get_rng_state()
    assert own_patch_size(model, images()) == own_patch_size(model, images()) == 8
    assert passes == [1], "one image, once"
    assert flags == [m.training for m in model.modules()] and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))
    assert own_patch_size(model, images(64)) == 8 and passes == [1, 1], "another size is measured by itself"


def test_compiled_models():
    model = wrap(Mine())
    assert own_patch_size(torch.compile(model), images()) == 8
    model.compile()
    with pytest.raises(UserError, match=r"compiled model cannot be counted.*patch_size=4$"):
        own_patch_size(model, images())


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize(
    "grid, size, side",
    [
        (Grid(0, 8, 8), (32, 32), 4),
        (Grid(1, 4, 8), (32, 64), 8),
        (Grid(0, 8, 8), (34, 34), 4),  # the rest belongs to no token
        (Grid(0, 9, 9), (33, 33), 4),  # the last token is cut off
        (Grid(0, 27, 27), (224, 224), None),  # overlapping patches that are not aligned with squares
        (Grid(0, 4, 4), (32, 64), None),
    ],
)
def test_the_pixels_of_a_token(grid, size, side):
    assert grid.patch_size(size) == side
