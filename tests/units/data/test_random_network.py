"""The made-up network: the identity before it is damaged, another one every twenty images, a copy in the same order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pictures
import pytest
import tiny
import torch

from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.data import DataConfig, load_data, load_training
from hardtack.data import random_network as module
from hardtack.data.sampler import SET


def test_undamaged_and_without_blocks_it_is_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DAMAGES", 0)
    network = module.make_network.__wrapped__(3)._replace(gain=0.0, contrast=1.0, brightness=0.0, blend=1.0)
    x = pictures.pictures(1)
    spread = x.std(dim=(2, 3), correction=0, keepdim=True)
    faded = (x - x.mean(dim=(2, 3), keepdim=True)) * spread / (spread + 1e-3) + x.mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(module.run(network, x), faded, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", module._KINDS)
def test_every_damage_changes_filters_and_keeps_their_shape(kind: str) -> None:
    key = module.randomness.make_keys(torch.tensor([5]), 0)
    filters = module.randomness.normal(key, (16, 16, 3, 3), 9)[0]
    made = module.damaged(filters, kind, key, stream=4)
    assert made.shape == filters.shape and not torch.equal(made, filters) and made.isfinite().all()
    kept = (made == filters).flatten(1).all(dim=1)
    assert kept.any() == (kind in ("dropped", "negated", "shuffled"))


def test_twenty_images_share_a_network_and_seeds_make_others() -> None:
    image = pictures.arrays(pictures.pictures(1))[0]
    made = [module.distort(image, index) for index in range(60)]
    assert all(np.array_equal(made[0], one) for one in made[:20])
    assert not np.array_equal(made[0], made[20]) and not np.array_equal(made[20], made[40])
    assert not np.array_equal(made[0], module.distort(image, 0, 1))


def test_images_stay_recognisable_and_differ() -> None:
    arrays = pictures.arrays(pictures.pictures(1, 48, 48))[0]
    changes, likeness = [], []
    for number in range(40):
        made = module.distort(arrays, 20 * number)
        assert made.dtype == np.uint8 and made.shape == arrays.shape
        changes.append(np.abs(made.astype(float) - arrays).mean())
        pairs = [abs(np.corrcoef(made.mean(2).ravel(), arrays[..., c].ravel())[0, 1]) for c in range(3)]
        likeness.append(max(pairs))
    assert np.median(changes) > 10 and min(changes) > 1
    assert np.median(likeness) > 0.5


def test_a_distorted_copy_is_added_without_what_validation_holds(tmp_path: Path) -> None:
    name = f"parquet:{tiny.parquet(tmp_path / 'train.parquet', 30)}"
    extra = [{"name": f"random_network:{seed}{name}", "copy": True} for seed in ("", "1@")]
    data = load_training(build(DataConfig, {"name": name, "validation": 0.2, "extra": extra}))
    own = load_data(build(DataConfig, {"name": name, "validation": 0.2}), "train")
    count = len(own)
    assert len(data) == 3 * count
    for number in range(3):
        part = slice(number * count, (number + 1) * count)
        assert torch.equal(data.index[part], own.index + number * SET) and torch.equal(data.labels[part], own.labels)
    x = data.batch(torch.arange(3 * count)).x
    row = int(own.index[4])
    stored = (own.batch([4]).x[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    expected = torch.from_numpy(module.distort(stored, row, 1)).permute(2, 0, 1) / 255
    assert torch.equal(x[2 * count + 4], expected)


def test_a_number_is_wanted_before_the_at() -> None:
    with pytest.raises(UserError, match="'x' before the @ is not a number"):
        load_data("random_network:x@digits", "train")
