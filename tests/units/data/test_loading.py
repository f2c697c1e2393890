"""The order of batches: a function of (seed, epoch, step), whole across ranks, resumable anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
import tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data import Dataset, batches, load_data, steps_per_epoch
from hardtack.data import sampler as sampler_module
from hardtack.data.stores import InOrder


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits", "train", limit=103)


@pytest.fixture
def streamed(tmp_path: Path) -> Dataset:
    path = tiny.parquet(tmp_path / "train.parquet", 23)
    return load_data(f"parquet:{path}", "train", stream=True, workers=0, validation=0)


def order(dataset: Dataset, size: int = 10, **options: object) -> list[list[int]]:
    return [batch.index.tolist() for batch in batches(dataset, size, device="cpu", **options)]


def flat(parts: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(parts))


def test_storage_order_without_a_seed(digits: Dataset) -> None:
    assert flat(order(digits)) == digits.index.tolist()
    assert len(order(digits)) == steps_per_epoch(digits, 10) == 11
    assert len(order(digits, drop_last=True)) == steps_per_epoch(digits, 10, True) == 10


def test_seed_and_epoch_shuffle(digits: Dataset) -> None:
    first = order(digits, shuffle_seed=1)
    assert first == order(digits, shuffle_seed=1)
    assert first != order(digits, shuffle_seed=2) and first != order(digits, shuffle_seed=1, epoch=1)
    assert sorted(flat(first)) == digits.index.tolist()


@pytest.mark.parametrize("start", [0, 1, 7, 10, 11])
def test_resuming_gives_the_tail(digits: Dataset, start: int) -> None:
    assert order(digits, shuffle_seed=1, epoch=3, start=start) == order(digits, shuffle_seed=1, epoch=3)[start:]


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_each_global_batch(digits: Dataset, world_size: int) -> None:
    alone = order(digits, shuffle_seed=1)
    ranks = [order(digits, shuffle_seed=1, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert [flat(parts) for parts in zip(*ranks, strict=True)] == alone


def test_pixels_and_labels_follow_the_index(digits: Dataset) -> None:
    stored = digits.batch(torch.arange(len(digits)))
    place = {int(i): n for n, i in enumerate(stored.index)}
    for x, y, index in batches(digits, 16, device="cpu", shuffle_seed=5):
        rows = [place[int(i)] for i in index]
        assert torch.equal(x, stored.x[rows]) and torch.equal(y, stored.y[rows])


def test_streaming_equals_memory(streamed: Dataset) -> None:
    resident = load_data(streamed.name, "train", validation=0)
    assert streamed.streamed and not resident.streamed
    for workers in (0, 2):
        pairs = zip(
            batches(streamed, 5, device="cpu", shuffle_seed=3, start=1, workers=workers),
            batches(resident, 5, device="cpu", shuffle_seed=3, start=1),
            strict=True,
        )
        for one, two in pairs:
            assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_broken_image_in_a_worker_is_one_line(tmp_path: Path) -> None:
    root = tiny.folder(tmp_path / "set")
    (root / "cat" / "3.png").write_bytes(b"not an image")
    dataset = load_data(f"folder:{root}", "test", test=1.0, stream=True)
    with pytest.raises(UserError, match=r"^cannot read the image .*3\.png") as caught:
        list(batches(dataset, 4, device="cpu", workers=1))
    assert "Traceback" not in str(caught.value)


def test_a_walked_set_shuffles_in_windows_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.walk_shards(monkeypatch)
    monkeypatch.setattr(sampler_module, "WINDOW", 4)
    name = f"wds/{tiny.web_shards(tmp_path / 'shards', shards=3)}"
    walked = load_data(name, "train", stream=True, validation=0, workers=0)
    assert isinstance(walked.store, InOrder) and "windows" in walked.description
    whole = order(walked, 3, shuffle_seed=1)
    row = flat(whole)
    assert [set(row[k : k + 4]) for k in (0, 4, 8)] == [set(range(k, k + 4)) for k in (0, 4, 8)]
    assert row != sorted(row)
    assert order(walked, 3, shuffle_seed=1, start=2) == whole[2:]
    in_memory = load_data(name, "train", stream=False, validation=0)
    for batch in batches(walked, 3, device="cpu", shuffle_seed=1):
        assert torch.equal(batch.x, in_memory.batch(batch.index).x)


def test_impossible_batches_are_refused(digits: Dataset) -> None:
    with pytest.raises(UserError, match="exceeds the 103 images"):
        steps_per_epoch(digits, 1000, True)
    with pytest.raises(UserError, match="at least 1"):
        steps_per_epoch(digits, 0)
