"""The index of a shard is that of its headers, is kept on disk, and a foreign one is not believed."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data import load_data, tar_index
from hardtack.data.content import content_digest
from hardtack.data.stores import OnDisk


@pytest.fixture(autouse=True)
def keep_small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_index, "_WORTH_KEEPING", 1)


def opened(root: Path, **settings: object):
    return load_data(f"wds/{root}", "train", **{"validation": 0, "stream": True, "workers": 0, **settings})


def forbid_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_index, "read_headers", lambda file: pytest.fail(f"the headers of {file} were read"))


def test_an_index_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    root = tiny.web_shards(tmp_path / "shards", shards=3)
    first = opened(root)
    assert len(list(own_cache.glob("tar_index/*.npz"))) == 3
    forbid_headers(monkeypatch)
    again = opened(root)
    assert all(torch.equal(a, b) for a, b in zip(*(d.batch(range(12)) for d in (first, again)), strict=True))
    assert content_digest(first) == content_digest(again)


def test_a_span_in_the_middle_reads_its_shard_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tiny.web_shards(tmp_path / "shards", shards=3)
    data = opened(root)
    assert isinstance(data.store, OnDisk)
    files: list[str] = []
    actual = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *mode: (files.append(self.name), actual(self, *mode))[1])
    data.batch([5, 7, 4])
    assert files == ["train-0001.tar"] * 3


def test_a_shard_changed_in_place_is_indexed_anew(tmp_path: Path) -> None:
    """Its size and the time of its change are the same, one label is not."""
    root = tiny.web_shards(tmp_path / "shards", shards=1)
    first, shard = opened(root), root / "train-0000.tar"
    with tarfile.open(shard) as tar:
        place = tar.getmember("00000.cls").offset_data
    data, state = shard.read_bytes(), shard.stat()
    shard.write_bytes(data[:place] + b"1" + data[place + 1 :])
    os.utime(shard, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert first.labels.tolist() == [0, 1, 0, 1] and opened(root).labels.tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize("change", ["beyond", "negative", "overflow", "shape", "text", "pickle", "broken"])
def test_a_forged_index_is_not_used(tmp_path: Path, own_cache: Path, change: str) -> None:
    root = tiny.web_shards(tmp_path / "shards", shards=1)
    first = opened(root)
    file = next(own_cache.glob("tar_index/*.npz"))
    with np.load(file) as arrays:
        spans, labels = arrays["spans"].copy(), arrays["labels"].copy()
    spans[0] = {"beyond": (10**6, 5), "negative": (-5, 5), "overflow": (2**62, 2**62)}.get(change, spans[0])
    forged = {"spans": spans, "labels": labels}
    forged |= {"shape": {"spans": spans[1:]}, "text": {"labels": labels.astype(str)}}.get(change, {})
    if change == "pickle":
        forged["labels"] = np.array([os.getcwd] * len(labels), dtype=object)
    np.savez(file, **forged)
    if change == "broken":
        file.write_bytes(file.read_bytes()[:100])
    assert torch.equal(opened(root).labels, first.labels) and torch.equal(opened(root).batch([0]).x, first.batch([0]).x)


def test_an_image_that_its_shard_no_longer_holds_is_an_error(tmp_path: Path) -> None:
    root = tiny.web_shards(tmp_path / "shards", shards=1)
    data = opened(root)
    (root / "train-0000.tar").write_bytes((root / "train-0000.tar").read_bytes()[:3000])
    with pytest.raises(UserError, match=r"train-0000\.tar: the shard ends before the image does"):
        data.batch([3])


def test_the_preferred_image_of_a_sample_and_the_order_of_first_members(tmp_path: Path) -> None:
    blobs = [
        ("b.png", b"p"),
        ("a.jpg", b"jj"),
        ("b.cls", b"1"),
        ("b.jpg", b"jjj"),
        ("a.webp", b"w"),
        ("a.cls", b" 0\n"),
    ]
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, blob in blobs:
            member = tarfile.TarInfo(name)
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    index = tar_index.read_headers(tmp_path / "a.tar")
    assert index is not None and index.labels.tolist() == [1, 0] and index.spans[:, 1].tolist() == [3, 2]
