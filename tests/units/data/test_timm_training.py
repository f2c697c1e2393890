"""The training augmentations of timm's recipes against timm's own: erasing, mixing in batches, crops, colour jitter."""

from __future__ import annotations

import math
import random

import numpy
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from timm.data.mixup import Mixup
from timm.data.random_erasing import RandomErasing

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.commands.recipe_files import recipe_folder
from hardtack.data import AugmentConfig, erasing, geometry, make_augment, mixing
from hardtack.data.augment import _MIX
from hardtack.data.sampling import RandomCrop
from hardtack.studies.rows import row_recipes
from hardtack.training import read_recipe

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def images(count: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    keys = randomness.make_keys(torch.arange(count), 3)
    return randomness.uniform(keys, (3, size, size), 99), torch.arange(count) % 10, keys


# ---------------------------------------------------------------- erasing


def erased_by_timm(count: int, size: int, settings: AugmentConfig) -> torch.Tensor:
    """A mean-coloured image, normalised, erased by timm and brought back to pixels."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    theirs = RandomErasing(probability=settings.erase, mode="pixel", device="cpu")
    before = random.getstate()
    try:
        random.seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return theirs(torch.zeros(count, 3, size, size)) * std + mean
    finally:
        random.setstate(before)


def test_normalised_erasing_is_timms_pixel_mode() -> None:
    """As often, as large, and with the same distribution of each channel once timm's is clamped to [0,1]."""
    _, y, keys = images(3000, 16)
    config = AugmentConfig(erase=0.5, erase_mode="normalised", erase_ratio=(0.3, 1 / 0.3))
    blank = torch.tensor(MEAN).view(1, 3, 1, 1).expand(3000, 3, 16, 16)
    ours, _ = make_augment(config, 10, mean=MEAN, std=STD)(blank, y, keys)
    theirs = erased_by_timm(3000, 16, config)
    assert theirs.min() < 0 and theirs.max() > 1, "timm's noise leaves the pixel range"
    shares = [(each != blank).any(dim=1).float().mean(dim=(1, 2)) for each in (ours, theirs)]
    assert abs((shares[0] > 0).float().mean() - (shares[1] > 0).float().mean()) < 0.03
    for quantile in (0.1, 0.5, 0.9):
        sizes = [share[share > 0].quantile(quantile) for share in shares]
        assert abs(sizes[0] - sizes[1]) < 0.015, quantile
    for channel in range(3):
        pixels = [each[:, channel][(each != blank).any(dim=1)].clamp(0, 1) for each in (ours, theirs)]
        for quantile in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99):
            levels = [each[:200_000].quantile(quantile) for each in pixels]
            assert abs(levels[0] - levels[1]) < 0.01, (channel, quantile)
    assert ours.min() == 0 and ours.max() == 1


def test_normalised_noise_is_that_of_the_key_in_units_of_the_deviation() -> None:
    x, _, keys = images(40)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    settings = {"probability": 1.0, "area": (0.3, 0.4), "ratio": (0.5, 2.0), "stream": 7}
    ours = erasing.erase(x, keys, mode="normalised", mean=mean, std=std, **settings)
    noise = (mean + std * randomness.normal(keys, (3, 16, 16), 7 + 5)).clamp(0, 1)
    changed = ours != x
    assert torch.equal(ours[changed], noise[changed]) and 0.2 < changed.float().mean() < 0.45


@pytest.mark.parametrize("recipe", ["rspc/_cifar10", "rspc/_cifar100", "rspc/_imagenet_fan", "rspc/_imagenet_rvt"])
def test_the_recipes_of_timm_erase_with_timms_constants(recipe: str) -> None:
    settings, theirs = read_recipe(recipe_folder() / f"{recipe}.yaml").augment, RandomErasing(mode="pixel")
    assert settings.erase_mode == "normalised" and settings.erase_area == (theirs.min_area, theirs.max_area)
    assert [math.log(side) for side in settings.erase_ratio] == pytest.approx(theirs.log_aspect_ratio, abs=1e-6)
    assert theirs.min_count == theirs.max_count == 1


def test_erasing_after_mixing_leaves_the_noise_whole() -> None:
    """timm's prefetching loader erases what its collate function has mixed: the noise belongs to one image."""
    x, y, keys = images(8)
    settings = {"erase": 1.0, "erase_mode": "const", "erase_fill": 1.0, "mixup": 1.0, "mix_mode": "batch"}
    mixed, labels = make_augment(AugmentConfig(mixup=1.0, mix_mode="batch"), 10)(x * 0.5, y, keys)
    after, same = make_augment(AugmentConfig(**settings, erase_after_mixing=True), 10)(x * 0.5, y, keys)
    before, _ = make_augment(AugmentConfig(**settings), 10)(x * 0.5, y, keys)
    assert torch.equal(labels, same) and (((after == 1) | (after == mixed)).all())
    assert (before == 1).sum() < (after == 1).sum(), "mixed afterwards, the noise is only a share"


# ---------------------------------------------------------------- mixing


def mixed_by_timm(
    x: torch.Tensor, y: torch.Tensor, key: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """timm's Mixup in its default mode, told the share, the choice and the place that `key` draws."""
    cuts = bool(randomness.uniform(key, (), _MIX + 1) < 0.5)
    alpha = 1.0 if cuts else 0.8
    share = float(mixing.beta(randomness.uniform(key, (), _MIX + 2), mixing.beta_table(alpha), alpha))
    theirs = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=10)
    assert theirs.mode == "batch" and theirs.switch_prob == 0.5 and theirs.mix_prob == 1.0
    monkeypatch.setattr(theirs, "_params_per_batch", lambda: (share, cuts))
    places = iter([int(randomness.integers(key, 16, (), _MIX + n)) for n in (3, 4)])
    monkeypatch.setattr(numpy.random, "randint", lambda *_, **__: next(places))
    return *theirs(x.clone(), y), cuts


@pytest.mark.parametrize("group", [None, 4])
def test_batches_are_mixed_as_timm_mixes_them(group: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for seed in range(6):
        x, y, _ = images(8)
        keys = randomness.make_keys(torch.arange(8), seed)
        config = AugmentConfig(mixup=0.8, cutmix=1.0, mix_mode="batch", mix_batch=group)
        ours, labels = make_augment(config, 10)(x, y, keys)
        smoothed = labels * 0.9 + 0.1 / 10  # what F.cross_entropy(label_smoothing=0.1) makes of soft labels
        for at in range(0, 8, group or 8):
            part = slice(at, at + (group or 8))
            mixed, target, cuts = mixed_by_timm(x[part], y[part], keys[at : at + 1], monkeypatch)
            torch.testing.assert_close(ours[part], mixed, atol=1e-6, rtol=0)
            torch.testing.assert_close(smoothed[part], target, atol=1e-6, rtol=0)
            seen.add(cuts)
    assert seen == {True, False}


def test_groups_are_mixed_alike_however_the_batch_is_divided() -> None:
    """Two processes with half a batch each mix as one process does: a group belongs to its images."""
    x, y, keys = images(16)
    augment = make_augment(AugmentConfig(mixup=0.8, cutmix=1.0, mix_mode="batch", mix_batch=4), 10)
    whole, labels = augment(x, y, keys)
    halves = [augment(x[part], y[part], keys[part]) for part in (slice(0, 8), slice(8, 16))]
    assert torch.equal(whole, torch.cat([half[0] for half in halves]))
    assert torch.equal(labels, torch.cat([half[1] for half in halves]))
    shares = labels.max(dim=1).values.view(4, 4)
    assert (shares == shares[:, :1]).all() and len(shares[:, 0].unique()) == 4
    by_image = make_augment(AugmentConfig(mixup=0.8, cutmix=1.0), 10)(x, y, keys)[1]
    assert len(by_image.max(dim=1).values.unique()) > 8, "the default draws for each image"


def test_a_batch_smaller_than_mix_batch_is_one_group_and_a_remainder_is_refused() -> None:
    x, y, keys = images(6)
    small = make_augment(AugmentConfig(mixup=1.0, mix_mode="batch", mix_batch=64), 10)(x, y, keys)
    whole = make_augment(AugmentConfig(mixup=1.0, mix_mode="batch"), 10)(x, y, keys)
    assert torch.equal(small[0], whole[0])
    with pytest.raises(UserError, match="mix_batch 4 does not divide the 6 images"):
        make_augment(AugmentConfig(mixup=1.0, mix_mode="batch", mix_batch=4), 10)(x, y, keys)
    with pytest.raises(UserError, match="mix_batch must be at least 2"):
        AugmentConfig(mix_batch=1)
    assert list(AugmentConfig(mix_batch=4).notes()) and not list(AugmentConfig(mix_batch=4, mix_mode="batch").notes())


def test_mixing_in_batches_compiles_into_one_graph() -> None:
    x, y, keys = images(8)
    config = AugmentConfig(mixup=0.8, cutmix=1.0, mix_mode="batch", mix_batch=4, erase=0.5, erase_mode="normalised")
    augment = make_augment(config, 10, mean=MEAN, std=STD)
    compiled = torch.compile(augment, fullgraph=True, backend="eager")
    for ours, traced in zip(augment(x, y, keys), compiled(x, y, keys), strict=True):
        torch.testing.assert_close(ours, traced)


# ---------------------------------------------------------------- the whole transform


def timms(recipe: str) -> tuple[AugmentConfig, dict[str, object]]:
    """A recipe's augmentation, and the steps of timm's training transform with the same settings."""
    settings = read_recipe(recipe_folder() / f"{recipe}.yaml")
    transform = create_transform(
        224, is_training=True, color_jitter=0.4, auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic",
        re_prob=settings.augment.erase, re_mode="pixel", mean=settings.model.mean, std=settings.model.std,
    )  # fmt: skip
    return settings.augment, {type(step).__name__: step for step in transform.transforms}


@pytest.mark.parametrize("recipe", ["rspc/_cifar10", "rspc/_cifar100", "rspc/_imagenet_fan", "rspc/_imagenet_rvt"])
def test_crop_flip_and_policy_of_the_recipes_are_timms(recipe: str) -> None:
    ours, theirs = timms(recipe)
    assert list(theirs) == [
        "RandomResizedCropAndInterpolation", "RandomHorizontalFlip", "RandAugment", "MaybeToTensor", "Normalize",
        "RandomErasing",
    ]  # fmt: skip
    crop, policy = theirs["RandomResizedCropAndInterpolation"], theirs["RandAugment"].ops[0]
    assert (ours.resized_crop, ours.resized_crop_ratio) == (crop.scale, crop.ratio)
    assert ours.resized_crop_at == "decode" and ours.resized_crop_interpolation == crop.interpolation.value
    assert ours.flip == theirs["RandomHorizontalFlip"].p and ours.policy == "rand-m9-mstd0.5-inc1"
    assert policy.hparams["interpolation"] == Image.Resampling.BICUBIC and ours.policy_interpolation is None
    assert tuple(round(255 * part) for part in ours.policy_fill) == policy.hparams["img_mean"]
    assert theirs["RandomErasing"].probability == ours.erase
    assert ours.mix_mode == "batch" and ours.color_jitter == 0


def test_the_loaders_crop_is_timms_of_the_same_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 32-pixel image cut and enlarged in one go: within a grey level or two of Pillow's bicubic, which timm uses."""
    from timm.data.transforms import RandomResizedCropAndInterpolation

    pixels = (images(6, 32)[0] * 255).round().byte()
    keys = randomness.make_keys(torch.arange(6), 5)
    settings = {"area": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
    cut = RandomCrop(side=48, interpolation="bicubic", stream=9, **settings).cutter(keys)
    theirs = RandomResizedCropAndInterpolation(48, interpolation="bicubic")
    candidates, offsets = (part.tolist() for part in geometry.box_draws(keys, 9))
    for i in range(6):
        box = geometry.crop_box(candidates[i], offsets[i], (32, 32), **settings)
        monkeypatch.setattr(theirs, "get_params", lambda *_, box=box: box)
        expected = numpy.asarray(theirs(Image.fromarray(pixels[i].permute(1, 2, 0).numpy()))).astype(int)
        assert abs(cut(i, pixels[i]).permute(1, 2, 0).numpy().astype(int) - expected).max() <= 2


def test_colour_jitter_is_left_out_beside_a_policy_as_in_timm() -> None:
    x, y, keys = images(6)
    policy = {"policy": "rand-m9-mstd0.5-inc1"}
    alone = make_augment(AugmentConfig(**policy), 10)(x, y, keys)[0]
    settings = AugmentConfig(**policy, color_jitter=0.4, color_jitter_with_policy=False)
    assert torch.equal(make_augment(settings, 10)(x, y, keys)[0], alone)
    assert not torch.equal(make_augment(AugmentConfig(**policy, color_jitter=0.4), 10)(x, y, keys)[0], alone)
    without = AugmentConfig(color_jitter=0.4, color_jitter_with_policy=False)
    assert not torch.equal(make_augment(without, 10)(x, y, keys)[0], x), "without a policy there is jitter"
    rows = "xcit/table3:randaugment/standard", "xcit/table5:deit_s", "xcit/table7:xcit_s12/flowers_standard"
    for _, values in (recipe for row in rows for recipe in row_recipes(row)):
        assert not read_recipe(None, **values).augment.color_jitter_with_policy
