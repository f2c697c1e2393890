"""Data sets on their way to a machine with another disk: what is read through this one, and what is read there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import object_store
import pytest
import tiny
import torch

from hardtack.base.runtime import Runtime
from hardtack.data import Dataset, corrupted_copy, load_data
from hardtack.data.remote import connection
from hardtack.data.travel import served

NAMES = {"folder": "folder:{}", "parquet": "parquet:{}", "shards": "wds/{}"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[object_store.Bucket]:
    with object_store.s3_server() as started:
        connection._connections.clear()
        yield started
    connection._connections.clear()


def stored(kind: str, place: Path) -> Path:
    if kind == "folder":
        return tiny.folder(place)
    if kind == "shards":
        return tiny.web_shards(place, shards=2)
    tiny.parquet(place / "train.parquet")
    return place


def load(kind: str, place: object) -> Dataset:
    return load_data(NAMES[kind].format(place), "train", validation=0, test=0.25, workers=0, stream=True)


@pytest.mark.parametrize("kind", NAMES)
def test_images_at_urls_are_fetched_by_the_machine_that_reads_them(bucket, tmp_path, monkeypatch, kind) -> None:
    data = load(kind, bucket.put_folder(stored(kind, tmp_path / "set"), f"travel-{kind}"))
    assert data.streamed
    asked: list[object] = []
    packed = pickle.dumps(served(data, lambda images: asked.append(images) or images))
    assert asked == [], "nothing is read through this machine"
    monkeypatch.setenv("HARDTACK_CACHE", str(tmp_path / "cache of the other machine"))
    there = pickle.loads(packed)
    rows = torch.arange(len(data))
    assert torch.equal(there.batch(rows).x, data.batch(rows).x)
    assert (tmp_path / "cache of the other machine" / "remote").is_dir()


@pytest.mark.parametrize("kind", NAMES)
def test_images_on_this_disk_are_read_through_this_machine(tmp_path, kind) -> None:
    data = load(kind, stored(kind, tmp_path / "set"))
    asked: list[object] = []
    moved = served(data, lambda images: asked.append(images) or images)
    assert data.store.images in asked and moved.store.images is data.store.images


def test_a_corrupted_copy_makes_no_folders_on_the_other_machine(tmp_path) -> None:
    """The path is one of the driver's disk, where another user of that machine may have files."""
    data = load("folder", tiny.folder(tmp_path / "set"))
    facts = {"constants": "cifar", "seed": 0, "jpeg": 0}
    copy = corrupted_copy.Copy(
        data=data,
        folder=tmp_path / "copy",
        facts=facts,
        frost=None,
        stored=None,
        runtime=Runtime(device="cpu"),
        types=("fog",),
        severities=(1,),
    )
    job = corrupted_copy._TreeJob(copy, "fog", (1,), title="corrupt fog")
    job.travels(lambda images: images).begin()
    assert not copy.folder.exists()
    job.begin()
    assert sorted(path.name for path in (copy.folder / "fog" / "1").iterdir()) == ["cat", "dog"]
