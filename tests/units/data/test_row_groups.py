"""Parquet is read a row group at a time, and only the groups that hold the rows."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import tiny
import torch

from hardtack.data import DataConfig, load_data, parquet, parquet_images


@pytest.fixture
def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The numbers of the row groups that were read; None: a whole file."""
    numbers: list[int | None] = []
    actual = parquet_images._encoded_images

    def counted(file, column, *, group=None):
        numbers.append(group)
        return actual(file, column, group=group)

    monkeypatch.setattr(parquet_images, "_encoded_images", counted)
    return numbers


def opened(path: Path, **settings: object):
    return load_data(f"parquet:{path}", "test", **{"workers": 0, "memory_limit_mb": 0, **settings})


def test_a_row_reads_its_group_alone(tmp_path: Path, groups_read: list) -> None:
    data = opened(tiny.parquet(tmp_path / "test.parquet", 60, rows=10))
    assert groups_read == [0], "the first image, for its size"
    data.batch([25, 22, 29])
    data.batch([27])
    assert groups_read == [0, 2]


def test_the_groups_used_last_are_kept(tmp_path: Path, groups_read: list) -> None:
    data = opened(tiny.parquet(tmp_path / "test.parquet", 60, rows=10))
    data.store.images.kept = 2
    data.batch([0, 10, 0, 20, 0, 10])
    assert groups_read == [0, 1, 2, 1] and len(data.store.images.held) == 2


def test_streamed_images_are_held_only_if_they_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.parquet(tmp_path / "test.parquet", 60, rows=10)
    few = opened(path, stream=True, memory_limit_mb=4096)
    monkeypatch.setattr(parquet, "_HELD_MB", 0)
    many = opened(path, stream=True, memory_limit_mb=4096)
    assert isinstance(few.store.images, parquet_images.HeldBytes)
    assert isinstance(many.store.images, parquet_images.RowGroups)
    assert few.description == many.description and torch.equal(few.batch(range(60)).x, many.batch(range(60)).x)


def test_opening_reads_the_column_of_labels_alone(tmp_path: Path, groups_read: list) -> None:
    tiny.parquet(tmp_path / "train.parquet", 60, rows=10, names=["cat", "dog"])
    path = tiny.parquet(tmp_path / "test.parquet", 60, rows=10, names=["cat", "dog"])
    columns: list[list[str]] = []
    actual = parquet_images.pq.ParquetFile.read

    def counted(self, *, columns: list[str], seen=columns):
        seen.append(columns)
        return actual(self, columns=columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_images.pq.ParquetFile, "read", counted)
        parquet.read_parquet(DataConfig(memory_limit_mb=0), str(path.parent))["test"]()
    assert columns == [["label"]] and groups_read == [], "of the split that is opened, without any image"


def test_another_process_reads_its_own_groups(tmp_path: Path) -> None:
    data = opened(tiny.parquet(tmp_path / "test.parquet", 60, rows=10))
    copy = pickle.loads(pickle.dumps(data.store.images))
    assert not copy.held and (copy.read(33) == data.store.images.read(33)).all()
