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


def _damaged(root: Path) -> str:
    """Twelve samples of which two cannot be decoded, one has no label and one no image."""
    root = tiny.web_shards(root, shards=3)
    image = tiny.png(tiny.pixels(1)[0])
    samples = {"a.png": image[:-40], "a.cls": b"0", "b.png": b"no image", "b.cls": b"1", "c.png": image, "d.cls": b"1"}
    _with(root / "train-0003.tar", samples)
    return f"wds/{root}"


def test_walked_shards_name_the_images_they_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's reader logs them and goes on: a number over fewer images."""
    tiny.walk_shards(monkeypatch)
    name = _damaged(tmp_path / "shards")
    with pytest.raises(UserError, match=r"4 images of wds/.*a in train-0003\.tar: .*data\.skip_damaged=true"):
        load_data(name, "train", validation=0)


@pytest.mark.parametrize("stream", [False, True])
def test_damaged_images_of_walked_shards_are_left_out_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: bool
) -> None:
    tiny.walk_shards(monkeypatch)
    name = _damaged(tmp_path / "shards")
    data = load_data(name, "train", validation=0, skip_damaged=True, stream=stream)
    assert len(data) == 12 and "without 4 damaged images" in data.description
    assert len(data.batch(torch.arange(12)).x) == 12
    assert "4 images of wds/" in capsys.readouterr().err
    good = load_data(f"wds/{tiny.web_shards(tmp_path / 'good', shards=3)}", "train", validation=0)
    assert "damaged" not in good.description


def test_a_shard_that_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("webdataset")
    root = tiny.web_shards(tmp_path / "shards", shards=2)
    shard = root / "train-0001.tar"
    shard.write_bytes(shard.read_bytes()[:1800])
    with pytest.raises(UserError, match=r"cannot be read"):
        load_data(f"wds/{root}", "train", validation=0)


@pytest.mark.parametrize("stream", [False, True])
def test_damaged_images_in_folders_and_plain_shards_are_left_out_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stream: bool
) -> None:
    image = tiny.png(tiny.pixels(1)[0])
    labels = {"a": b"0", "b": b"1", "c": b"0", "d": b"1"}
    files = {f"{name}.png": image for name in labels} | {f"{name}.cls": label for name, label in labels.items()}
    shard = _with(tmp_path / "shards" / "train.tar", {**files, "b.png": b"broken"})
    for name in ("cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"):
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"broken" if name == "cat/b.png" else image)
    for name in (f"wds/{shard.parent}", f"folder:{tmp_path / 'folder'}"):
        split = "train" if name[0] == "w" else "test"
        settings = {
            "stream": stream,
            "validation": 0 if split == "train" else 0.1,
            "test": 1.0 if split == "test" else 0.01,
        }
        with pytest.raises(UserError, match="cannot read the image"):
            load_data(name, split, **settings).batch([1])
        data = load_data(name, split, skip_damaged=True, **settings)
        assert len(data) == 3 and "without 1 damaged image" in data.description
        assert data.index.tolist() == [0, 2, 3] and len(data.batch([0, 1, 2]).x) == 3
        assert "left out" in capsys.readouterr().err
