"""Attention under disturbance: closed forms, every kind of model, refusals by name, and no dependence on the batch."""

import dataclasses

import numpy as np
import pytest
import torch

import hardtack as ht
from hardtack.analysis.attention import measures
from hardtack.analysis.attention.analysis import AttentionStability
from hardtack.analysis.attention.maps import Grid, find_grid, find_layers, listen
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
    return ht.analyze(model, data, "attention", runtime=CPU, quiet=True, **settings)


# ---------------------------------------------------------------- closed forms


def one_hot(places, keys=4):
    """N×1×1×queries×keys: every query looks at one key."""
    return torch.eye(keys)[torch.tensor(places)][:, None, None]


def test_identical_maps_have_similarity_one_and_orthogonal_ones_zero():
    a, b = one_hot([[0, 1], [2, 3]]), one_hot([[1, 0], [2, 3]])
    for measure in (measures.similarity, measures.row_similarity):
        assert measure(a, a).flatten().tolist() == pytest.approx([1, 1])
        assert measure(a, b).flatten().tolist() == pytest.approx([0, 1])


def test_rows_count_alike_where_the_whole_map_counts_the_sharper():
    sharp, flat = torch.tensor([1.0, 0, 0, 0]), torch.full((4,), 0.25)
    a = torch.stack([sharp, flat])[None, None, None]
    b = torch.stack([sharp.roll(1), flat])[None, None, None]  # the sharp row moved, the flat one stayed
    assert measures.row_similarity(a, b).item() == pytest.approx(0.5)
    assert measures.similarity(a, b).item() == pytest.approx(0.25 / 1.25)


@pytest.mark.parametrize("disturb", ["occlude", "noise", "corrupt", "attack"])
def test_every_disturbance_of_an_image_is_another(vit, disturb):
    found = look(vit, images(2), disturb=disturb, masks=2, **({"attack": {"steps": 1}} if disturb == "attack" else {}))
    first, second = found.arrays["similarity_masks"].T
    assert (first != second).all()


def test_entropy_is_zero_at_one_key_and_one_at_all():
    assert measures.entropy(one_hot([[0, 3]])).item() == 0
    assert measures.entropy(torch.full((1, 1, 1, 3, 8), 1 / 8)).item() == pytest.approx(1)
    assert measures.entropy(torch.ones(1, 1, 1, 1, 1)).item() == 0


def test_distance_is_that_of_the_patches_looked_at():
    apart = measures.distances((2, 2), (2, 2), (1.0, 1.0))
    assert apart[0].tolist() == pytest.approx([0, 0.5, 0.5, 0.5**0.5])
    itself = torch.eye(5)[None, None, None]  # a class token and four patches
    assert measures.distance(itself, apart, first_query=1, first_key=1).item() == 0
    to_the_class_too = itself.clone()
    to_the_class_too[..., 1, :] = torch.tensor([0.6, 0, 0.4, 0, 0])  # of the patches, the first looks at the second
    found = measures.distance(to_the_class_too, apart, first_query=1, first_key=1)
    assert found.item() == pytest.approx(0.5 / 4)


@pytest.mark.parametrize(
    "tokens, prefix, size, grid",
    [
        (197, 1, (224, 224), Grid(1, 14, 14)),
        (196, 1, (224, 224), Grid(0, 14, 14)),
        (51, 1, (40, 80), Grid(1, 5, 10)),
        (8, 0, (16, 64), None),
        (1, 0, (8, 8), None),
    ],
)
def test_tokens_are_laid_over_the_image(tokens, prefix, size, grid):
    assert find_grid(tokens, prefix, size) == grid


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(
    "name, kind, kinds",
    [
        ("vit_digits", "token", {"token"}),
        ("rvt_tiny_plus_32", "token", {"token"}),
        ("fan_tiny_hybrid_32", "token", {"token"}),
        ("fan_tiny_hybrid_32", "channel", {"channel"}),
        ("fan_tiny_hybrid_32", "class", {"class"}),
    ],
)
def test_maps_of_our_own_models(name, kind, kinds):
    model = ht.load_model(name, num_classes=10, seed=0).eval()
    x, _ = images(2)
    layers = find_layers(model, x[:1], kind)
    maps = listen(model, x, kind)
    assert {layer.kind for layer in layers} == kinds and len(maps) == len(layers)
    assert [(layer.heads, *layer.tokens) for layer in layers] == [(m.shape[1], *m.shape[-2:]) for m in maps]
    if kind == "token":
        assert all(layer.place.queries == layer.place.keys for layer in layers)


@pytest.mark.parametrize("name", ["timm:swin_tiny_patch4_window7_224", "timm:pvt_v2_b0"])
def test_windows_and_coarser_keys_are_those_of_the_image(name):
    """Each image's map must be its own, in a batch as alone."""
    model = ht.load_model(name, num_classes=3, seed=0).eval()
    x, _ = images(2, side=224)
    layers = find_layers(model, x[:1], "token")
    together, alone = listen(model, x, "token"), listen(model, x[1:], "token")
    for a, b, layer in zip(together, alone, layers, strict=True):
        assert a.shape[0] == 2 and torch.allclose(a[1:], b, atol=1e-5)
        assert torch.allclose(a.sum(dim=-1), torch.ones(a.shape[:-1]), atol=1e-4)
        assert layer.place is not None
    first = layers[0].place
    assert (first.windows, first.size) == ((64, (1 / 8, 1 / 8)) if "swin" in name else (1, (1.0, 1.0)))


def test_networks_without_such_attention_are_refused_by_name():
    data = images(2)
    with pytest.raises(UserError, match=r"^ResNet has no attention; saliency"):
        look(ht.load_model("timm:resnet18", num_classes=10, seed=0), data)
    xcit = ht.load_model("timm:xcit_nano_12_p8_224", num_classes=10, image_size=32, seed=0)
    with pytest.raises(
        UserError, match=r"Xcit has no attention between tokens.*its channel attention is attention.kind=c"
    ):
        look(xcit, data)
    for kind, heads in (("channel", 4), ("class", 4)):
        found = look(xcit, data, kind=kind)
        assert set(found.facts["heads"]) == {heads} and -1 <= found.of("attention_similarity").value <= 1
    assert np.isnan(found.arrays["distance"]).all() and found.of("attention_distance") is None
    assert found.arrays["map"].shape == (2, 2, 4, 4)  # two layers of class attention over the patches


# ---------------------------------------------------------------- the analysis


def test_a_disturbance_that_changes_nothing_leaves_attention_alone(vit):
    found = look(vit, images(), disturb="attack", attack={"start": "clean"}, threat="linf:1e-06")
    assert found.of("attention_similarity").value == pytest.approx(1, abs=1e-5)
    assert found.of("attention_similarity").threat == "linf:1e-06"
    assert found.arrays["entropy"] == pytest.approx(found.arrays["entropy_disturbed"], abs=1e-4)


def test_the_score_is_the_mean_over_heads_and_layers_of_what_the_maps_say(vit):
    x, y = images(3)
    found = look(vit, (x, y), disturb="noise", sigma=0.3, masks=2)
    from hardtack.analysis import AnalysisContext
    from hardtack.analysis.attention.disturbance import make_disturbance

    settings = AttentionStability(disturb="noise", sigma=0.3, masks=2)
    show = make_disturbance(settings, AnalysisContext(model=vit, data=(x, y), runtime=CPU)).show
    vit.eval()
    values = []
    for number in (0, 1):
        maps = zip(listen(vit, x, "token"), listen(vit, show(x, y, torch.arange(3), number), "token"), strict=True)
        cosines = [(a * b).sum((2, 3, 4)) / a.norm(dim=(3, 4))[..., 0] / b.norm(dim=(3, 4))[..., 0] for a, b in maps]
        values.append(torch.stack([c.mean(1) for c in cosines]).mean(0))
    assert found.arrays["similarity_masks"] == pytest.approx(torch.stack(values, dim=1).numpy(), abs=1e-5)
    assert found.of("attention_similarity").value == pytest.approx(float(torch.stack(values).mean()), abs=1e-5)
    layers = [found.of("attention_similarity", name).value for name in found.facts["layers"]]
    assert np.mean(layers) == pytest.approx(found.of("attention_similarity").value, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"masks": 2},
        {"disturb": "noise"},
        {"disturb": "corrupt", "type": "fog", "severity": 5},
        {"disturb": "attack", "attack": {"steps": 2}},
    ],
)
def test_nothing_depends_on_the_batch(vit, settings):
    one, many = (look(vit, images(), batch_size=size, **settings) for size in (1, 6))
    assert one.arrays.keys() == many.arrays.keys()
    for name, values in one.arrays.items():
        assert np.allclose(values, many.arrays[name], atol=1e-4, equal_nan=True), name


def test_every_mask_is_another_and_only_a_tenth_changes(vit):
    found = look(vit, images(), masks=3)
    assert len(np.unique(found.arrays["similarity_masks"][0])) == 3
    changed = (found.arrays["shown_x"] != found.arrays["shown_disturbed"]).any(axis=-1).mean(axis=(1, 2))
    patches = 32 * 32 / 64  # vit_digits cuts its images into patches of 8 pixels: 2 of 16 are a tenth, rounded up
    assert changed == pytest.approx(2 / patches, abs=0.01)
    assert "2 of 16 patches of 8×8, 3 masks" in found.facts["disturbance"]


def test_maps_of_the_query_are_rows_of_the_attention(vit):
    x, y = images(2)
    found = look(vit, (x, y), query=(0.99, 0.0), shown=1)
    assert found.arrays["map"].shape == (1, 4, 4, 4)
    maps = listen(vit.eval(), x[:1], "token")
    prefix = find_layers(vit, x[:1], "token")[0].place.queries.prefix
    assert found.arrays["map"][0, 2] == pytest.approx(
        maps[2][0, :, 0, prefix + 12, prefix:].mean(0).reshape(4, 4).numpy(), abs=1e-6
    )


def test_an_occluder_may_choose_the_patches(vit, tmp_path):
    save_occluder(tmp_path / "o.safetensors", Occluder(32, 8, 0.25))
    found = look(vit, images(), occluder=str(tmp_path / "o.safetensors"))
    assert "chosen by an occluder" in found.facts["disturbance"]
    with pytest.raises(UserError, match="leave out the setting masks"):
        AttentionStability(occluder="o", masks=2)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"disturb": "corrupt", "type": "fgo"}, "did you mean 'fog'"),
        ({"disturb": "corrupt", "type": "noise"}, "one corruption, found the group"),
        ({"share": 0.2, "disturb": "noise"}, "share is a setting of disturb=occlude"),
        ({"severity": 9, "disturb": "corrupt"}, "severity"),
        ({"disturb": "ocllude"}, "disturb"),
        ({"share": 2.0}, "share must lie above 0"),
        ({"threat": "linf:8/255"}, "threat is a setting of disturb=attack"),
        ({"query": (1.0, 0.5)}, "query"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, said):
    with pytest.raises(UserError, match=said):
        AttentionStability(**settings)


def test_a_map_of_many_tokens_is_like_itself():
    uniform = torch.full((1, 1, 1, 1500, 1500), 1 / 1500)
    assert float(measures.similarity(uniform, uniform)) == 1.0


def test_layers_without_a_place_are_named(vit, monkeypatch):
    assert not any("leaves out" in note for note in look(vit, images(2)).notes)

    def half_known(*args):
        first, *rest = find_layers(*args)
        return [dataclasses.replace(first, place=None), *rest]

    monkeypatch.setattr("hardtack.analysis.attention.analysis.find_layers", half_known)
    assert any("attention distance leaves out blocks.0:" in note for note in look(vit, images(2)).notes)
