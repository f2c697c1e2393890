"""Windows that reach beyond the image: padding is found where the network put it, and counts for nothing."""

import numpy as np
import pytest
import torch
from torchvision.models import SwinTransformer

import hardtack as ht
from hardtack.analysis.attention import measures
from hardtack.analysis.attention.maps import find_layers, listen
from hardtack.analysis.attention.padding import find_inside, without_padding
from hardtack.base.runtime import Runtime

CPU = Runtime(device="cpu")


def torchvision_swin(window):
    """8×8 patches of a 16-pixel image, then 4×4."""
    torch.manual_seed(0)
    settings = {"patch_size": [2, 2], "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2]}
    return ht.wrap(SwinTransformer(**settings, window_size=[window, window], num_classes=10)).eval(), 16


def timm_swin(window=4):
    """24×24 patches, 12×12, 6×6 (padded to 8×8), 3×3."""
    settings = {"depths": (1, 1, 2, 1), "heads": (2, 2, 2, 2), "width": 16, "image_size": 48, "num_classes": 10}
    return ht.load_model("swin_tiny_patch2_window4_32", seed=0, **settings).eval(), 48


@pytest.mark.parametrize(
    "make, window, padded", [(torchvision_swin, 3, 4), (torchvision_swin, 7, 4), (timm_swin, 4, 2)]
)
def test_what_is_outside_does_not_depend_on_the_image(make, window, padded):
    model, side = make(window)
    for name, weight in model.named_parameters():
        if name.endswith("qkv.bias"):  # of padding nothing but the bias is left
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    x = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    layers = find_layers(model, x[:1], "token")
    found = [
        (layer.inside, map_) for layer, map_ in zip(layers, listen(model, x, "token"), strict=True) if layer.padded
    ]
    assert len(found) == padded
    for inside, weights in found:
        same = []
        for number, on_it in enumerate(inside):
            same.append([torch.allclose(*_among(weights[:, :, number], part), atol=1e-5) for part in (~on_it, on_it)])
        assert all(outside for outside, _ in same) and not all(within for _, within in same)


def _among(weights, chosen):
    among = weights[..., chosen, :][..., chosen]
    return among / among.sum(dim=-1, keepdim=True)


def test_places_inside():
    assert find_inside(torch.nn.Identity(), 2, 4, (3, 3)).int().tolist() == [
        [1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0],
    ]  # fmt: skip
    assert find_inside(torch.nn.Identity(), 2, 4, (5, 5)) is None  # needs nine


def test_padding_counts_for_nothing():
    """Two windows of 2×2 on a map of 2 rows and 3 columns: the second has two places outside."""
    inside = torch.tensor([[True] * 4, [True, False, True, False]])
    clean = torch.rand(1, 1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    other = clean.clone()
    other[:, :, 1, 1::2], other[:, :, 1, :, 1::2] = 9.0, 7.0
    a, b = (without_padding(one / one.sum(dim=-1, keepdim=True), inside) for one in (clean, other))
    assert measures.similarity(a, b).item() == pytest.approx(1)
    assert measures.row_similarity(a, b).item() == pytest.approx(1)
    assert measures.entropy(a).item() == pytest.approx(measures.entropy(b).item())
    even = without_padding(torch.full((1, 1, 2, 4, 4), 0.25), inside)
    assert measures.entropy(even).item() == pytest.approx(1)
    apart = measures.distances((2, 2), (2, 2), (1.0, 1.0))
    first, second = (0.5 + 0.5 + 0.5**0.5) / 4, 0.5 / 2
    found = measures.distance(even, apart, first_query=0, first_key=0)
    assert found.item() == pytest.approx((4 * first + 2 * second) / 6)


def test_a_single_window_is_cut_to_the_image_and_drawn():
    model, side = torchvision_swin(7)
    data = (torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)), torch.arange(2))
    found = ht.analyze(model, data, "attention", runtime=CPU, quiet=True)
    assert found.facts["tokens"] == [[49, 49], [49, 49], [16, 16], [16, 16]]
    assert found.arrays["map"].shape[2:] == (4, 4)
    assert found.arrays["map"].sum(axis=(2, 3)) == pytest.approx(np.ones((2, 2)), abs=1e-5)
    assert np.isfinite(found.arrays["distance"]).all() and found.arrays["distance"].max() < 2**0.5
    assert "windows extend beyond the image in features.1.0, features.1.1, features.3.0" in found.notes[0]
    saliency = ht.analyze(model, data, "saliency", runtime=CPU, quiet=True)
    assert saliency.of("patch_overlap", "saliency, attention") is not None


def test_whole_windows_have_no_note():
    model, side = torchvision_swin(4)
    data = (torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0)), torch.arange(1))
    found = ht.analyze(model, data, "attention", runtime=CPU, quiet=True)
    assert not any("beyond" in note for note in found.notes) and np.isfinite(found.arrays["distance"]).all()
