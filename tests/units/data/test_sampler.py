"""Repeated, mixed and cropped draws: functions of (seed, epoch, step), whole across ranks, resumable anywhere."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as reference

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.data import (
    AugmentConfig,
    Batch,
    DataConfig,
    Dataset,
    batches,
    geometry,
    load_data,
    load_training,
    make_augment,
    steps_per_epoch,
)
from hardtack.data import parquet_images as parquet_module
from hardtack.data import sampler as sampler_module
from hardtack.data.augment import RESIZED_CROP
from hardtack.data.sampler import COPY, SET
from hardtack.data.stores import InOrder, OnDisk

CROPPED = AugmentConfig(resized_crop=(0.2, 1.0), resized_crop_interpolation="bicubic", resized_crop_at="decode")


def synthetic(path: Path, count: int = 7) -> str:
    """An npz of digits-like images with labels of their own."""
    np.savez(path, images=tiny.pixels(count, (8, 8), seed=5), labels=np.arange(count) % 10)
    return f"npz:{path}"


@pytest.fixture(
    params=["plain", "repeats", "synthetic", "both", "parquet", "shards", "walked", "cropped", "cropped walked"]
)
def dataset(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Every way of drawing, on every kind of store."""
    kind = request.param
    monkeypatch.setattr(sampler_module, "WINDOW", 8)
    monkeypatch.setattr(parquet_module, "_KEPT_IMAGES", 6)
    files = {"validation": 0.0, "workers": 0, "stream": True, "repeats": 3}
    if "walked" in kind:
        tiny.walk_shards(monkeypatch)
        name = f"wds/{tiny.web_shards(tmp_path / 'shards', shards=4, each=8)}"
        crop, size = (CROPPED, 16) if kind.startswith("cropped") else (None, None)
        return load_training(DataConfig(name=name, image_size=size, **files), crop)
    if kind == "shards":
        return load_training(DataConfig(name=f"wds/{tiny.web_shards(tmp_path / 'shards', shards=4, each=8)}", **files))
    if kind in ("parquet", "cropped"):
        name = f"parquet:{tiny.parquet(tmp_path / 'train.parquet', 33)}"
        limit = 0 if kind == "parquet" else 4096
        crop, size = (CROPPED, 16) if kind == "cropped" else (None, None)
        return load_training(DataConfig(name=name, memory_limit_mb=limit, image_size=size, **files), crop)
    repeats = 3 if kind in ("repeats", "both") else 1
    other = {"name": synthetic(tmp_path / "made.npz"), "share": 0.4} if kind in ("synthetic", "both") else None
    return load_training(load_config(limit=40, repeats=repeats, synthetic=other))


def load_config(**values: object) -> DataConfig:
    from hardtack.base.config import build

    return build(DataConfig, {"name": "digits", **values})


def run(dataset: Dataset, size: int = 10, **options: object) -> list[Batch]:
    return list(batches(dataset, size, device="cpu", **{"shuffle_seed": 1, "epoch": 2, "drop_last": True, **options}))


def same(one: list[Batch], two: list[Batch]) -> bool:
    return len(one) == len(two) and all(
        torch.equal(a, b) for left, right in zip(one, two, strict=True) for a, b in zip(left, right, strict=True)
    )


def test_resuming_gives_the_tail_and_seed_and_epoch_another_order(dataset: Dataset) -> None:
    whole = run(dataset)
    assert len(whole) == steps_per_epoch(dataset, 10, True) >= 3
    for start in (1, len(whole) - 1):
        assert same(run(dataset, start=start), whole[start:])
    assert same(run(dataset), whole)
    assert not same(run(dataset, epoch=3), whole) and not same(run(dataset, shuffle_seed=2), whole)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_each_global_batch(dataset: Dataset, world_size: int) -> None:
    whole = run(dataset)
    ranks = [run(dataset, rank=rank, world_size=world_size) for rank in range(world_size)]
    joined = [Batch(*(torch.cat(parts) for parts in zip(*shares, strict=True))) for shares in zip(*ranks, strict=True)]
    assert same(joined, whole)


def test_every_draw_has_a_key_of_its_own(dataset: Dataset) -> None:
    numbers = torch.cat([batch.index for batch in run(dataset)])
    assert len(numbers.unique()) == len(numbers)


def test_repeats_show_a_third_of_the_images_three_times_in_as_many_draws() -> None:
    data = load_training(load_config(limit=90, repeats=3))
    assert steps_per_epoch(data, 30, True) == 3
    place = {int(number): row for row, number in enumerate(data.index)}
    seen: Counter[int] = Counter()
    for x, y, index in run(data, 30):
        images = index % COPY
        assert all(count == 3 for count in Counter(images.tolist()).values())
        assert (images != images.roll(1)).all()  # mixup's partner is another image
        assert sorted((index // COPY).tolist()) == [0] * 10 + [1] * 10 + [2] * 10
        rows = [place[int(number)] for number in images]
        stored = data.batch(rows)
        assert torch.equal(x, stored.x) and torch.equal(y, stored.y)
        seen.update(images.tolist())
    assert len(seen) == 30
    first = {int(n) for batch in run(data, 30, epoch=0) for n in batch.index % COPY}
    assert first != set(seen)


def test_copies_are_augmented_differently() -> None:
    data = load_training(load_config(limit=20, repeats=2))
    batch = run(data, 20)[0]
    keys = randomness.make_keys(batch.index, 0, 2)
    x, _ = make_augment(AugmentConfig(resized_crop=(0.2, 0.9)), 10)(batch.x, batch.y, keys)
    assert torch.equal(batch.x[:10], batch.x[10:])
    assert all(not torch.equal(a, b) for a, b in zip(x[:10], x[10:], strict=True))


def test_a_share_of_every_batch_is_synthetic_and_all_of_it_comes_round(tmp_path: Path) -> None:
    data = load_training(load_config(limit=60, synthetic={"name": synthetic(tmp_path / "made.npz"), "share": 0.5}))
    plain = load_data(load_config(limit=60), "train")
    assert steps_per_epoch(data, 12, True) == 10  # six real images a step
    made: list[int] = []
    for epoch in range(2):
        real: list[int] = []
        for batch in run(data, 12, epoch=epoch):
            number = batch.index % COPY
            other = number >= SET
            assert other.view(-1, 4).sum(1).tolist() == [2, 2, 2]  # spread over the processes
            real += number[~other].tolist()
            made += (number[other] - SET).tolist()
            assert torch.equal(batch.y[other], torch.tensor([n % 10 for n in (number[other] - SET).tolist()]))
        assert sorted(real) == plain.index.tolist()
    for start in range(0, len(made) - 6, 7):  # pass after pass over the seven, over the epochs' border too
        assert sorted(made[start : start + 7]) == list(range(7))
    assert made[:7] != made[7:14]


def test_crops_are_torchvisions_of_the_stored_photograph(tmp_path: Path) -> None:
    root = tiny.folder(tmp_path / "photos", each=6, size=(40, 56))
    config = DataConfig(name=f"folder:{root}", image_size=16, workers=0, validation=0.25)
    data, shrunk = load_training(config, CROPPED), load_data(config, "train")
    assert isinstance(data.store, OnDisk) and data.image_shape == (3, 16, 16) == shrunk.image_shape
    assert "random boxes" in data.description and "centre" in shrunk.description
    arrays = [data.store.images.read(row) for row in range(12)]
    for batch in run(data, 3):
        keys = randomness.make_keys(batch.index, 1, 2)
        for image, key, number in zip(batch.x, keys, batch.index.tolist(), strict=True):
            box = geometry.draw_boxes(
                key[None], (40, 56), area=(0.2, 1.0), ratio=(3 / 4, 4 / 3), stream=RESIZED_CROP, whole=True
            )
            stored = torch.from_numpy(arrays[number].copy()).permute(2, 0, 1)
            theirs = reference.resized_crop(
                stored, *(int(part) for part in box[:4]), [16, 16], InterpolationMode.BICUBIC, antialias=True
            )
            assert torch.equal(image, theirs / 255)
    with_workers = run(data, 3, workers=2)
    assert same(with_workers, run(data, 3))


def test_crops_of_decoded_images_are_taken_from_their_stored_size() -> None:
    data = load_training(DataConfig(name="digits", image_size=24, limit=30, workers=0), CROPPED)
    assert data.image_shape == (3, 24, 24) and data.store.pixels.shape[-1] == 32
    assert run(data)[0].x.shape == (10, 3, 24, 24)
    whole = load_data(DataConfig(name="digits", image_size=24, limit=30), "train")
    assert torch.equal(data.batch([3, 5]).x, whole.batch([3, 5]).x)  # looked at, not drawn
    with pytest.raises(UserError, match=r"set data\.image_size"):
        load_training(DataConfig(name="digits"), CROPPED)
    with pytest.raises(UserError, match="resized_crop"):
        AugmentConfig(resized_crop_at="decode")
    make_augment(CROPPED, 10, data)
    with pytest.raises(UserError, match="load_training"):  # nobody would crop
        make_augment(CROPPED, 10, whole)


def test_row_groups_are_read_once_or_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wholly random order would read a group for almost every image."""
    monkeypatch.setattr(parquet_module, "_KEPT_IMAGES", 12)
    path = tiny.parquet(tmp_path / "train.parquet", 60, rows=4)
    data = load_training(DataConfig(name=f"parquet:{path}", memory_limit_mb=0, validation=0.0, workers=0, stream=True))
    assert data.store.images.kept == 3
    reads: Counter[int] = Counter()
    opened = parquet_module.pq.ParquetFile

    class Counting(opened):  # type: ignore[misc, valid-type]
        def iter_batches(self, *sizes: int, row_groups: list[int], **options: object) -> object:
            reads.update(row_groups)
            return super().iter_batches(*sizes, row_groups=row_groups, **options)

    monkeypatch.setattr(parquet_module.pq, "ParquetFile", Counting)
    numbers = [int(n) for batch in run(data, 10) for n in batch.index]
    assert sorted(numbers) == list(range(60))
    assert set(reads) == set(range(15)) and max(reads.values()) == 1
    windows = [{number // 4 for number in numbers[k : k + 12]} for k in range(0, 60, 12)]
    assert all(len(groups) == 3 for groups in windows)
    assert list(itertools.chain(*windows)) != sorted(itertools.chain(*windows))


def test_repeated_draws_of_a_walked_set_come_from_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.walk_shards(monkeypatch)
    monkeypatch.setattr(sampler_module, "WINDOW", 8)
    name = f"wds/{tiny.web_shards(tmp_path / 'shards', shards=6, each=8)}"
    data = load_training(DataConfig(name=name, stream=True, validation=0.0, workers=0, repeats=2))
    assert isinstance(data.store, InOrder)
    rows = torch.cat([batch.index for batch in run(data, 8)]) % COPY
    assert len(rows) == 48 and len(rows.unique()) == 24 and rows.max() >= 40
    assert (rows.view(-1, 4).amin(1) // 8).diff().min() >= -1  # still walked from the first to the last
