"""What a user would notice of flips, crops, jitter, erasing and mixing: closed forms and exact slices."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as reference

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.data import AugmentConfig, colour, erasing, geometry, make_augment, mixing
from hardtack.data.augment import _CROP, _JITTER, _MIX, _ROTATE


def images(count: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    keys = randomness.make_keys(torch.arange(count), 3)
    return randomness.uniform(keys, (3, size, size), 99), torch.arange(count) % 10, keys


def test_nothing_is_changed_by_default() -> None:
    x, y, keys = images(4)
    out, labels = make_augment(AugmentConfig(), 10)(x, y, keys)
    assert torch.equal(out, x) and torch.equal(labels, y)


@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_flip_mirrors_with_the_given_probability(probability: float) -> None:
    x, y, keys = images(2000, 4)
    out, _ = make_augment(AugmentConfig(flip=probability), 10)(x, y, keys)
    flipped = (out == x.flip(-1)).flatten(1).all(dim=1)
    kept = (out == x).flatten(1).all(dim=1)
    assert (flipped ^ kept).all()
    assert abs(flipped.float().mean() - probability) < 0.04


@pytest.mark.parametrize("mode", ["zero", "reflect"])
def test_padded_crop_is_a_slice_of_the_padded_image(mode: str) -> None:
    x, y, keys = images(50)
    out, _ = make_augment(AugmentConfig(crop_padding=4, crop_mode=mode), 10)(x, y, keys)
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4), mode="constant" if mode == "zero" else "reflect")
    top, left = (randomness.integers(keys, 9, (), _CROP + n) for n in (0, 1))
    for i in range(50):
        assert torch.equal(out[i], padded[i, :, top[i] : top[i] + 16, left[i] : left[i] + 16])
    assert set(top.tolist()) == set(range(9))  # every offset occurs, both ends included


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resized_crop_is_torchvisions(interpolation: str) -> None:
    x, _, keys = images(40)
    box = geometry.draw_boxes(keys, (16, 16), area=(0.1, 0.9), ratio=(3 / 4, 4 / 3), stream=0, whole=True)
    out = geometry.resized_crop(x, *box[:4], interpolation=interpolation)
    for i in range(40):
        top, left, tall, wide = (int(part[i]) for part in box[:4])
        mode = InterpolationMode(interpolation)
        theirs = reference.resized_crop(x[i], top, left, tall, wide, [16, 16], interpolation=mode, antialias=True)
        torch.testing.assert_close(out[i], theirs.clamp(0, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(40, 56), (90, 20), (224, 224)])
def test_the_loaders_boxes_are_the_devices(size: tuple[int, int]) -> None:
    _, _, keys = images(500, 1)
    settings = {"area": (0.08, 1.1), "ratio": (3 / 4, 4 / 3)}
    boxes = torch.stack(geometry.draw_boxes(keys, size, stream=5, whole=True, **settings)[:4], dim=1)
    draws = zip(*(part.tolist() for part in geometry.box_draws(keys, 5)), strict=True)
    ours = torch.tensor([geometry.crop_box(*each, size, **settings) for each in draws])
    assert ours.shape == boxes.shape and (ours == boxes).all(dim=1).float().mean() > 0.99  # doubles round otherwise


def test_areas_above_one_never_fit_and_are_drawn_again() -> None:
    """[0.8, 1.2] is in effect [0.8, 1], and the whole image where ten draws fail (half of them fail each time)."""
    _, _, keys = images(20_000)
    box = geometry.draw_boxes(keys, (224, 224), area=(0.8, 1.2), ratio=(0.95, 1.05), stream=0, whole=True)
    share = (box[2] * box[3]).float() / 224**2
    assert share.max() <= 1 and share.min() > 0.795
    assert abs(share.mean() - 0.895) < 0.005 and 0 < (~box[4]).float().mean() < 0.01


def test_rotation_is_torchvisions() -> None:
    x, y, keys = images(30)
    out, _ = make_augment(AugmentConfig(rotate=2.0, rotate_interpolation="bilinear"), 10)(x, y, keys)
    degrees = (randomness.uniform(keys, (), _ROTATE) * 2 - 1) * 2
    assert degrees.min() < -1.5 and degrees.max() > 1.5
    for i in range(30):
        theirs = reference.rotate(x[i], float(degrees[i]), interpolation=InterpolationMode.BILINEAR)
        torch.testing.assert_close(out[i], theirs, atol=1e-4, rtol=0)


def test_boxes_have_the_area_and_ratio_asked_for() -> None:
    _, _, keys = images(4000)
    _, _, tall, wide, found = geometry.draw_boxes(
        keys, (224, 224), area=(0.1, 0.5), ratio=(0.5, 2.0), stream=0, whole=True
    )
    share = (tall * wide).float() / 224**2
    assert found.all() and share.min() > 0.095 and share.max() < 0.505
    assert abs(share.mean() - 0.3) < 0.01
    assert (wide / tall).min() > 0.49 and (wide / tall).max() < 2.05


@pytest.mark.parametrize("amount", [0.0, 0.4, 1.7])
def test_colour_operations_are_torchvisions(amount: float) -> None:
    x, _, _ = images(5)
    factor = torch.full((5,), amount)
    pairs = (
        (colour.black, reference.adjust_brightness),
        (colour.flat_grey, reference.adjust_contrast),
        (colour.colourless, reference.adjust_saturation),
        (colour.blurred, reference.adjust_sharpness),
    )
    for other, theirs in pairs:
        torch.testing.assert_close(
            colour.blend(x, other(x), factor), torch.stack([theirs(i, amount) for i in x]), atol=2e-6, rtol=0
        )
    turn = amount / 4
    ours = colour.shift_hue(x, torch.full((5,), turn))
    torch.testing.assert_close(ours, torch.stack([reference.adjust_hue(i, turn) for i in x]), atol=1e-5, rtol=0)


def test_jitter_is_torchvisions_with_its_factors_and_order() -> None:
    x, y, keys = images(20)
    out, _ = make_augment(AugmentConfig(color_jitter=0.4), 10)(x, y, keys)
    factors = randomness.uniform(keys, (3,), _JITTER) * 0.8 + 0.6
    order = randomness.uniform(keys, (3,), _JITTER + 2).argsort(dim=1)
    theirs = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation)
    for i in range(20):
        image = x[i]
        for kind in order[i].tolist():
            image = theirs[kind](image, float(factors[i, kind]))
        torch.testing.assert_close(out[i], image, atol=1e-5, rtol=0)
    assert len({tuple(row) for row in order.tolist()}) == 6


def test_jitter_takes_every_order_and_stays_in_range() -> None:
    x, y, keys = images(1)
    x, keys = x.expand(100, -1, -1, -1), randomness.make_keys(torch.arange(100), 4)
    out, _ = make_augment(AugmentConfig(color_jitter=0.4, color_jitter_hue=0.1), 10)(x, y, keys)
    assert out.min() >= 0 and out.max() <= 1
    assert len({row.numpy().tobytes() for row in out}) == 100


def test_cutout_blanks_one_square_cut_off_at_the_border() -> None:
    _, y, keys = images(500)
    out, _ = make_augment(AugmentConfig(cutout=8, cutout_fill=0.25), 10)(torch.ones(500, 3, 16, 16), y, keys)
    area = (out == 0.25)[:, 0].flatten(1).sum(1)
    assert area.max() == 64 and area.min() == 16  # centred on a corner pixel, a quarter remains (4×4)
    assert ((out == 0.25) | (out == 1)).all()


def test_erasing_hits_a_box_of_the_stated_area_with_the_stated_probability() -> None:
    _, y, keys = images(1000, 32)
    config = AugmentConfig(erase=0.5, erase_mode="const", erase_area=(0.1, 0.2))
    out, _ = make_augment(config, 10)(torch.ones(1000, 3, 32, 32), y, keys)
    share = (out == 0)[:, 0].float().mean(dim=(1, 2))
    assert abs((share > 0).float().mean() - 0.5) < 0.05
    assert share[share > 0].min() > 0.08 and share.max() < 0.22
    noise = erasing.erase(
        torch.full((1000, 3, 8, 8), 2.0),
        keys,
        probability=1.0,
        mode="pixel",
        area=(0.3, 0.4),
        ratio=(1, 1),
        stream=0,
    )
    noise = noise[noise != 2]
    assert noise.min() >= 0 and noise.max() < 1 and abs(noise.mean() - 0.5) < 0.01


def test_erasing_by_a_truncated_normal_has_its_moments() -> None:
    stats = pytest.importorskip("scipy.stats")
    u = (torch.arange(20_001) + 0.5) / 20_001
    ours, exact = erasing.truncated_normal(u), stats.truncnorm(-2, 2, loc=0.5, scale=0.25)
    assert abs(ours.numpy() - exact.ppf(u.numpy())).max() < 1e-4
    ones = erasing.erase(
        torch.full((200, 3, 8, 8), 2.0), randomness.make_keys(torch.arange(200), 0), probability=1.0, mode="normal",
        area=(0.3, 0.4), ratio=(1, 1), stream=0,
    )  # fmt: skip
    noise = ones[ones != 2]
    assert noise.min() >= 0 and noise.max() <= 1 and abs(noise.std() - exact.std()) < 0.01


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_shares_are_beta_distributed(alpha: float) -> None:
    u = (torch.arange(100_000) + 0.5) / 100_000
    share = mixing.beta(u, mixing.beta_table(alpha), alpha)
    assert abs(share.mean() - 0.5) < 1e-3
    assert abs(share.var() - 1 / (4 * (2 * alpha + 1))) < 1e-3
    if alpha == 1:
        torch.testing.assert_close(share, u, atol=1e-5, rtol=0)
    stats = pytest.importorskip("scipy.stats")
    low = u < 0.5  # near 1 the float32 grid is too coarse for the steep distribution function
    assert abs(stats.beta(alpha, alpha).cdf(share[low].double().numpy()) - u[low].numpy()).max() < 1e-3
    torch.testing.assert_close(share.flip(0), 1 - share, atol=1e-3, rtol=0)


@pytest.mark.parametrize("options", [{"mixup": 1.0}, {"cutmix": 1.0}, {"mixup": 0.5, "cutmix": 1.0}])
def test_soft_labels_match_the_pixels(options: dict[str, float]) -> None:
    """Image i is constant i/16, so its mean after mixing tells the share that the label must state."""
    level = torch.arange(16) / 16
    x = level.view(16, 1, 1, 1).expand(-1, 3, 8, 8)
    keys = randomness.make_keys(torch.arange(16), 8)
    out, y = make_augment(AugmentConfig(**options), 16)(x, torch.arange(16), keys)
    torch.testing.assert_close(y.sum(1), torch.ones(16))
    torch.testing.assert_close(out.mean(dim=(1, 2, 3)), y @ level)
    assert (y > 0).sum() > 20


def test_mixing_and_smoothing_are_timms_with_the_same_share_and_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's Mixup, one image at a time, told the share and the place that our key drew."""
    from timm.data.mixup import Mixup

    x, y, keys = images(16)
    ours, labels = make_augment(AugmentConfig(mixup=0.8, cutmix=1.0, mix_switch=0.5), 10)(x, y, keys)
    u = randomness.uniform(keys, (), _MIX + 2)
    cuts = randomness.uniform(keys, (), _MIX + 1) < 0.5
    rows, columns = (randomness.integers(keys, 16, (), _MIX + n) for n in (3, 4))
    assert 4 <= int(cuts.sum()) <= 12
    for i in range(16):
        alpha = 1.0 if cuts[i] else 0.8
        share = float(mixing.beta(u[i : i + 1], mixing.beta_table(alpha), alpha))
        theirs = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, mode="batch", label_smoothing=0.1, num_classes=10)
        monkeypatch.setattr(theirs, "_params_per_batch", lambda share=share, i=i: (share, bool(cuts[i])))
        places = iter([int(rows[i]), int(columns[i])])
        monkeypatch.setattr(numpy.random, "randint", lambda *_, places=places, **__: next(places))
        pair = torch.stack([x[i], x[i - 1]])
        mixed, target = theirs(pair.clone(), torch.stack([y[i], y[i - 1]]))
        torch.testing.assert_close(ours[i], mixed[0], atol=1e-5, rtol=0)
        logits = randomness.normal(keys[i : i + 1], (10,), 5)
        smoothed = torch.nn.functional.cross_entropy(logits, labels[i : i + 1], label_smoothing=0.1)
        soft = -(target[0] * logits.log_softmax(-1)[0]).sum()
        torch.testing.assert_close(smoothed, soft, atol=1e-5, rtol=1e-5)


def test_mixing_with_probability_zero_leaves_images_alone() -> None:
    x, y, keys = images(10)
    out, labels = make_augment(AugmentConfig(mixup=1.0, cutmix=1.0, mix_probability=0.0), 10)(x, y, keys)
    assert torch.equal(out, x) and torch.equal(labels.argmax(1), y) and labels.max() == 1


@pytest.mark.parametrize(
    "options",
    [
        {
            "flip": 0.5, "crop_padding": 2, "resized_crop": (0.5, 1.0), "color_jitter": 0.2, "color_jitter_hue": 0.1,
            "cutout": 3, "erase": 0.5, "mixup": 0.5, "cutmix": 1.0, "policy": "randaugment",
        },
        {
            "resized_crop": (0.5, 1.0), "resized_crop_interpolation": "bicubic", "rotate": 2.0,
            "erase": 0.5, "erase_mode": "normal", "policy": "rand-m9-n1-mstd0.5-inc1",
        },
    ],
)  # fmt: skip
def test_it_compiles_into_one_graph(options: dict[str, Any]) -> None:
    """No host synchronisation, no data-dependent shape: the tracer would break the graph there."""
    x, y, keys = images(4)
    config = AugmentConfig(**options)
    augment = make_augment(config, 10)
    compiled = torch.compile(augment, fullgraph=True, backend="eager")
    for ours, traced in zip(augment(x, y, keys), compiled(x, y, keys), strict=True):
        torch.testing.assert_close(ours, traced)


@pytest.mark.parametrize(
    "options", [{"flip": 1.5}, {"cutout": -1}, {"resized_crop": (1.2, 0.5)}, {"randaugment_magnitude": 31}]
)
def test_impossible_settings_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        AugmentConfig(**options)
