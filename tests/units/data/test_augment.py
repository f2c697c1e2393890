"""What a user would notice of flips, crops, jitter, erasing and mixing: closed forms and exact slices."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from hardtack import randomness
from hardtack.data import AugmentConfig, colour, erasing, geometry, make_augment, mixing
from hardtack.data.augment import _CROP
from hardtack.errors import UserError


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


def test_resized_crop_is_torchvisions() -> None:
    x, _, keys = images(40)
    box = geometry.draw_boxes(keys, (16, 16), area=(0.1, 0.9), ratio=(3 / 4, 4 / 3), stream=0, whole=True)
    out = geometry.resized_crop(x, *box[:4])
    for i in range(40):
        top, left, tall, wide = (int(part[i]) for part in box[:4])
        theirs = reference.resized_crop(x[i], top, left, tall, wide, [16, 16])
        torch.testing.assert_close(out[i], theirs, atol=1e-5, rtol=0)


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


def test_mixing_with_probability_zero_leaves_images_alone() -> None:
    x, y, keys = images(10)
    out, labels = make_augment(AugmentConfig(mixup=1.0, cutmix=1.0, mix_probability=0.0), 10)(x, y, keys)
    assert torch.equal(out, x) and torch.equal(labels.argmax(1), y) and labels.max() == 1


def test_it_compiles_into_one_graph() -> None:
    """No host synchronisation, no data-dependent shape: the tracer would break the graph there."""
    x, y, keys = images(4)
    config = AugmentConfig(
        flip=0.5, crop_padding=2, resized_crop=(0.5, 1.0), color_jitter=0.2, color_jitter_hue=0.1, cutout=3,
        erase=0.5, mixup=0.5, cutmix=1.0, policy="randaugment",
    )  # fmt: skip
    augment = make_augment(config, 10)
    compiled = torch.compile(augment, fullgraph=True, backend="eager")
    for ours, traced in zip(augment(x, y, keys), compiled(x, y, keys), strict=True):
        torch.testing.assert_close(ours, traced)


@pytest.mark.parametrize(
    "options", [{"flip": 1.5}, {"cutout": -1}, {"resized_crop": (0.5, 1.2)}, {"randaugment_magnitude": 31}]
)
def test_impossible_settings_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        AugmentConfig(**options)
