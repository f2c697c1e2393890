"""Saliency of linear models is their weights; overlaps are counted, refusals have names."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.attention.maps import AttentionLayer, Grid, TokenGrid
from hardtack.analysis.saliency.analysis import Saliency, concentration, overlap, received, saliency
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models import Occluder, save_occluder

CPU = Runtime(device="cpu")


def images(n=6, side=32):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 10


@pytest.fixture(scope="module")
def vit():
    return ht.load_model("vit_digits", num_classes=10, seed=0)


def look(model, data, **settings):
    return ht.analyze(model, data, "saliency", runtime=CPU, quiet=True, **settings)


class Linear(nn.Module):
    def __init__(self, side=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3 * side * side, generator=torch.Generator().manual_seed(1)))

    def forward(self, x):
        return x.flatten(1) @ self.weight.T


def test_saliency_of_a_linear_model_is_its_weights():
    model, (x, _) = Linear(), images(3, 8)
    y = torch.tensor([0, 3, 1])
    expected = model.weight[y].reshape(3, 3, 8, 8).abs().amax(dim=1)
    assert torch.allclose(saliency(model, x, y), expected)
    found = look(model, (x, y), smooth=3, shown=2)  # noise does not change the gradient of a linear model
    whole = look(model, (x, y))
    assert found.arrays["patches_saliency"] == pytest.approx(whole.arrays["patches_saliency"], rel=1e-5)
    assert found.arrays["patches_saliency"][0, 0, 0] == pytest.approx(float(expected[0, :4, :4].sum().detach()))
    assert found.arrays["shown_saliency"].shape == (2, 8, 8) and found.arrays["shown_saliency"].max() == 255
    assert "no attention over the whole image" in found.notes[0]


def test_the_predicted_class_may_be_followed(vit):
    x, _ = images()
    with torch.no_grad():
        predicted = vit.eval()(x).argmax(dim=1)
    one, other = look(vit, (x, (predicted + 1) % 10), of="predicted"), look(vit, (x, predicted))
    assert one.arrays["patches_saliency"] == pytest.approx(other.arrays["patches_saliency"], rel=1e-4, abs=1e-6)


def test_concentration_is_a_tenth_when_spread_and_one_in_a_point():
    assert concentration(torch.ones(1, 10, 10)).item() == pytest.approx(0.1)
    point = torch.zeros(1, 10, 10)
    point[0, 3, 3] = 7
    assert concentration(point).item() == pytest.approx(1)


def test_overlap_counts_patches_that_both_choose():
    a, b = torch.zeros(2, 2, 2, dtype=torch.bool), torch.zeros(2, 2, 2, dtype=torch.bool)
    a[:, 0] = True
    b[0, 0], b[1, :, 0] = True, True
    assert overlap(a, b).tolist() == [1, 0.5]


def test_attention_received_is_laid_on_the_grid_of_the_patches():
    place = TokenGrid(queries=Grid(1, 2, 2), keys=Grid(1, 2, 2), windows=1, size=(1.0, 1.0))
    layer = AttentionLayer(name="a", kind="token", heads=1, tokens=(5, 5), size=25, place=place)
    weights = torch.zeros(1, 1, 1, 5, 5)
    weights[..., 2] = 1  # everyone looks at the second patch
    assert received([weights], [layer], (2, 2))[0].tolist() == [[0, 1], [0, 0]]
    fine = received([weights], [layer], (4, 4))[0]
    assert fine[:2, 2:].sum().item() == pytest.approx(1) and fine[0, 0] == 0


def test_attention_and_occluder_are_compared_with_saliency(vit, tmp_path):
    occluder = Occluder(32, 8, 0.25)
    save_occluder(tmp_path / "o.safetensors", occluder)
    x, y = images(8)
    found = look(vit, (x, y), occluder=str(tmp_path / "o.safetensors"))
    assert found.facts["choices"] == ["saliency", "attention", "occluder"]
    assert (found.facts["patches"], found.facts["of"], found.facts["chance"]) == (4, 16, 0.25)
    hidden = occluder(x) > 0
    salient = torch.from_numpy(found.arrays["patches_saliency"])
    for i in range(8):
        best = set(salient[i].flatten().argsort(descending=True)[:4].tolist())
        chosen = set(hidden[i].flatten().nonzero().flatten().tolist())
        assert found.arrays["overlap_saliency_occluder"][i] == pytest.approx(len(best & chosen) / 4)
    assert found.of("patch_overlap", "chance").value == 0.25
    assert found.of("patch_overlap", "attention, occluder").n == 8


def test_another_occluder_at_the_same_place_is_another_analysis(vit, tmp_path):
    file, seen = tmp_path / "o.safetensors", []
    for _ in range(2):
        save_occluder(file, Occluder(32, 8, 0.25))
        found = ht.analyze(vit, images(), "saliency", folder=tmp_path, runtime=CPU, quiet=True, occluder=str(file))
        seen.append(found.id)
    assert len(set(seen)) == 2


@pytest.mark.parametrize("settings", [{}, {"smooth": 2}])
def test_nothing_depends_on_the_batch(vit, settings):
    one, many = (look(vit, images(), batch_size=size, **settings) for size in (1, 6))
    for name, values in one.arrays.items():
        assert np.allclose(values, many.arrays[name], rtol=1e-3, atol=1 if "shown" in name else 1e-5), name


def test_class_attention_is_used_if_there_is_no_token_attention():
    xcit = ht.load_model("timm:xcit_nano_12_p8_224", num_classes=10, image_size=32, seed=0)
    assert look(xcit, images(2)).facts["attention"] == "class"


def test_invalid_settings_and_models_are_refused(vit, tmp_path):
    with pytest.raises(UserError, match="leave out share"):
        Saliency(occluder="x", share=0.2)
    with pytest.raises(UserError, match="share must lie above 0"):
        Saliency(share=0.0)
    save_occluder(tmp_path / "o.safetensors", Occluder(64, 8, 0.25))
    with pytest.raises(UserError, match="made for images of 64×64, found 32×32"):
        look(vit, images(), occluder=str(tmp_path / "o.safetensors"))

    class Blind(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 10)

    with pytest.raises(UserError, match="passes no gradient"):
        look(Blind(), images())


def test_images_without_a_gradient_have_no_saliency(tmp_path):
    """A dead class, and a model that is dead throughout."""
    model, (x, _) = Linear(), images(3, 8)
    with torch.no_grad():
        model.weight[3] = 0
    found = look(model, (x, torch.tensor([0, 3, 1])), folder=tmp_path)
    assert np.isnan(found.arrays["concentration"]).tolist() == [False, True, False]
    result = found.of("saliency_concentration")
    assert (
        result.n == 2
        and result.value == pytest.approx(np.nanmean(found.arrays["concentration"]))
        and result.value > 0.1
    )
    assert "zero or NaN on 1 of 3 images" in found.notes[1]
    with torch.no_grad():
        model.weight.zero_()
    nothing = look(model, (x, torch.tensor([0, 3, 1])))
    assert nothing.of("saliency_concentration") is None and "on 3 of 3 images" in nothing.notes[1]
    assert nothing.results[0].flags[0]["code"] == "constant_outputs"


def test_patches_of_a_zero_gradient_overlap_with_nothing(vit):
    dead = ht.load_model("vit_digits", num_classes=10, seed=0)
    with torch.no_grad():
        for weight in dead.body.head.parameters():
            weight.zero_()
    assert look(vit, images(2)).of("patch_overlap", "saliency, attention") is not None
    assert look(dead, images(2)).of("patch_overlap", "saliency, attention") is None
