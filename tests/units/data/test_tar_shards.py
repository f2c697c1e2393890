"""Shards that are looked up are what timm's walker finds in them, without its walk."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data import DataConfig, load_data, timm_readers
from hardtack.data.stores import InOrder, OnDisk


def test_looked_up_shards_are_the_walked_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"wds/{tiny.web_shards(tmp_path / 'shards', shards=3)}"
    found = load_data(name, "train", stream=True, validation=0)
    tiny.walk_shards(monkeypatch)
    walked = load_data(name, "train", stream=True, validation=0)
    assert isinstance(found.store, OnDisk) and isinstance(walked.store, InOrder)
    one, two = (data.batch(torch.arange(12)) for data in (found, walked))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True)) and found.classes == walked.classes


def test_splits_of_an_info_file_are_looked_up(tmp_path: Path) -> None:
    root = tiny.web_shards(tmp_path / "shards", shards=3)
    names = sorted(path.name for path in root.glob("*.tar"))
    splits = {
        split: {"name": split, "filenames": files, "shard_lengths": [4] * len(files), "num_samples": 4 * len(files)}
        for split, files in (("train", names[:2]), ("validation", names[2:]))
    }
    (root / "_info.json").write_text(json.dumps({"splits": splits}))
    assert len(load_data(f"wds/{root}", "test")) == 4
    assert len(load_data(f"wds/{root}", "train", validation=0)) == 8


def _with(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, blob in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            tar.addfile(info, io.BytesIO(blob))
    return path


def test_what_is_no_plain_shard_is_left_to_the_walker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tiny.png(tiny.pixels(1)[0])
    packed = _with(tmp_path / "packed" / "train.tar", {"a.png": image, "a.cls": b"0"}, "w:gz")
    unlabelled = _with(tmp_path / "other" / "train.tar", {"a.png": image, "a.json": b"{}"})
    handed: list[str] = []
    monkeypatch.setattr(timm_readers, "_walked", lambda make, name: handed.append(name))
    for file in (packed, unlabelled):
        timm_readers.read_timm(DataConfig(root=str(tmp_path)), f"wds/{file.parent}")["train"]()
    assert handed == [f"wds/{packed.parent}", f"wds/{unlabelled.parent}"]


def test_a_broken_image_is_named_with_its_shard(tmp_path: Path) -> None:
    shard = _with(tmp_path / "shards" / "train.tar", {"a.jpg": b"no image", "a.cls": b"0"})
    with pytest.raises(UserError, match=r"image 0, in .*train\.tar"):
        load_data(f"wds/{shard.parent}", "train", validation=0)
