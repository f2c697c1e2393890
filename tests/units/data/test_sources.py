"""Every stored format on tiny files: right pixels, right labels, right names, and clear refusals."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
import torch
from PIL import Image

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.data.decode import decode_all, rgb_array


def as_unit(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.transpose(0, 3, 1, 2).astype(np.float32)) / 255


def everything(dataset) -> torch.Tensor:  # type: ignore[no-untyped-def]
    return dataset.batch(torch.arange(len(dataset))).x


@pytest.mark.parametrize("archive", [False, True])
def test_cifar10_pixels_and_names(tmp_path: Path, archive: bool) -> None:
    root = str(tiny.cifar10(tmp_path, archive=archive))
    train, test = (load_data("cifar10", split, root=root, validation=0) for split in ("train", "test"))
    assert len(train) == 30 and len(test) == 6 and train.classes[3] == "class3" and train.num_classes == 10
    assert torch.equal(everything(train)[:6], as_unit(tiny.pixels(6, seed=0)))
    assert torch.equal(everything(test), as_unit(tiny.pixels(6, seed=5)))


def test_cifar100_fine_and_coarse(tmp_path: Path) -> None:
    root = str(tiny.cifar100(tmp_path, archive=True))
    assert load_data("cifar100", "test", root=root).labels.tolist() == [98, 99] * 4
    coarse = load_data("cifar100", "test", root=root, label="coarse_label")
    assert coarse.num_classes == 20 and coarse.labels.tolist() == [18, 19] * 4


class _Malice:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return os.mkdir, (str(self.marker),)


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    tiny.cifar10(tmp_path)
    marker = tmp_path / "ran"
    blob = pickle.dumps({b"data": _Malice(marker), b"labels": [0]}, protocol=2)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(blob)
    with pytest.raises(UserError, match=r"mkdir.*not loaded"):
        load_data("cifar10", "test", root=str(tmp_path))
    assert not marker.exists()


def test_cifar_missing_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz.*kriz"):
        load_data("cifar10", "train", root=str(tmp_path))


def test_parquet_shards_names_and_splits(tmp_path: Path) -> None:
    tiny.parquet(tmp_path / "data/train-00000-of-00002.parquet", 8, names=["ant", "bee", "cow"], seed=0)
    tiny.parquet(tmp_path / "data/train-00001-of-00002.parquet", 8, names=["ant", "bee", "cow"], seed=1)
    tiny.parquet(tmp_path / "data/test-00000-of-00001.parquet", 4, seed=2)
    train = load_data(f"parquet:{tmp_path}", "train", validation=0.25)
    assert train.classes == ("ant", "bee", "cow") and len(train) == 12
    assert torch.equal(everything(load_data(f"parquet:{tmp_path}", "test")), as_unit(tiny.pixels(4, seed=2)))
    shard = load_data(f"parquet:{tmp_path}/data/train-00001*.parquet", "train", validation=0)
    assert torch.equal(everything(shard), as_unit(tiny.pixels(8, seed=1)))
    with pytest.raises(UserError, match="no test split, only train"):
        load_data(f"parquet:{tmp_path}/data/train-00001-of-00002.parquet", "test")


def test_parquet_read_by_row_groups(tmp_path: Path) -> None:
    path = tiny.parquet(tmp_path / "images.parquet", 10, rows=3)
    dataset = load_data(f"parquet:{path}", "test", test=1.0, memory_limit_mb=0)
    assert dataset.streamed and "row groups" in dataset.description
    assert torch.equal(dataset.batch(torch.tensor([9, 0, 4])).x, as_unit(tiny.pixels(10))[[9, 0, 4]])


def test_a_set_without_splits_is_cut_in_three_that_share_nothing(tmp_path: Path) -> None:
    name = f"parquet:{tiny.parquet(tmp_path / 'images.parquet', 20)}"
    parts = [load_data(name, split, validation=0.2) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [12, 4, 4]
    assert sorted(torch.cat([part.index for part in parts]).tolist()) == list(range(20))
    assert all("cut from a set without splits" in part.description for part in parts)


def test_a_set_without_splits_can_be_measured_whole(tmp_path: Path) -> None:
    name = f"parquet:{tiny.parquet(tmp_path / 'images.parquet', 20)}"
    assert len(load_data(name, "test", test=1.0)) == 20
    with pytest.raises(UserError, match="leaves none for train"):
        load_data(name, "train", test=1.0)


def test_the_first_images_of_a_folder_are_of_every_class(tmp_path: Path) -> None:
    dataset = load_data(f"folder:{tiny.folder(tmp_path / 'set', each=6)}", "test", test=1.0)
    part = dataset.first(dataset.num_classes)
    assert sorted(part.labels.tolist()) == list(range(dataset.num_classes)) and part.description.endswith("; first 2")


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, -1], "negative"), ([0, None], "missing"), ([0.0, float("nan")], "NaN"), (["a", "b"], "whole")],
)
def test_bad_labels_are_refused(tmp_path: Path, labels: list, message: str) -> None:
    path = tiny.parquet(tmp_path / "images.parquet", 2, labels=labels)
    with pytest.raises(UserError, match=message):
        load_data(f"parquet:{path}", "test")


def test_labels_beyond_the_named_classes_are_refused(tmp_path: Path) -> None:
    path = tiny.parquet(tmp_path / "images.parquet", 4, names=["only"])
    with pytest.raises(UserError, match="label 1, but there are only 1 classes"):
        load_data(f"parquet:{path}", "test")


def test_folder_with_splits(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        tiny.folder(tmp_path / split, each=3)
    train = load_data(f"folder:{tmp_path}", "train")
    assert len(train) == 6 and train.classes == ("cat", "dog") and train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(everything(train)[:3], as_unit(tiny.pixels(3, seed=0)))
    assert len(load_data(f"folder:{tmp_path}", "validation")) == 6


def test_validation_images_serve_as_test_when_there_is_no_test_set(tmp_path: Path) -> None:
    """As for ImageNet: a model must not be chosen on the images it is reported on."""
    tiny.folder(tmp_path / "train", each=10)
    tiny.folder(tmp_path / "val", each=3)
    sizes = {split: len(load_data(f"folder:{tmp_path}", split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 18, "validation": 2, "test": 6}
    assert "stored validation split serves as test" in load_data(f"folder:{tmp_path}", "test").description


def test_wrong_folder_layouts_are_explained(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="neither folders nor images"):
        load_data(f"folder:{tmp_path}/empty", "test")
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "1.png").write_bytes(tiny.png(tiny.pixels(1)[0]))
    with pytest.raises(UserError, match="1 images directly in it and no class folders"):
        load_data(f"folder:{tmp_path}/loose", "test")
    with pytest.raises(UserError, match=r"did you mean 'loose'"):
        load_data(f"folder:{tmp_path}/losse", "test")
    mixed = tiny.folder(tmp_path / "mixed", each=2)
    Image.fromarray(tiny.pixels(1, (20, 24))[0]).save(mixed / "dog" / "x.png")
    with pytest.raises(UserError, match=r"x\.png is 20×24 but others are 32×32; set data\.image_size"):
        load_data(f"folder:{mixed}", "test")
    assert load_data(f"folder:{mixed}", "test", image_size=16).image_shape == (3, 16, 16)


def test_a_test_folder_with_an_unknown_class_is_refused(tmp_path: Path) -> None:
    tiny.folder(tmp_path / "train")
    tiny.folder(tmp_path / "test", classes=("cats", "dog"))
    with pytest.raises(UserError, match="did you mean 'cat'"):
        load_data(f"folder:{tmp_path}", "test")


def test_every_colour_mode_becomes_rgb() -> None:
    red = Image.new("RGB", (2, 2), (255, 0, 0))
    assert rgb_array(red.convert("CMYK"))[0, 0].tolist() == [255, 0, 0]
    assert rgb_array(red.convert("P"))[0, 0].tolist() == [255, 0, 0]
    assert rgb_array(Image.new("L", (2, 2), 7))[0, 0].tolist() == [7, 7, 7]
    assert rgb_array(Image.new("1", (2, 2), 1))[0, 0].tolist() == [255] * 3
    assert rgb_array(Image.new("RGBA", (2, 2), (255, 0, 0, 0)))[0, 0].tolist() == [255] * 3  # over white
    assert rgb_array(Image.fromarray(np.full((2, 2), 65535, np.uint16)))[0, 0].tolist() == [255] * 3
    with pytest.raises(UserError, match="32 bits"):
        rgb_array(Image.new("F", (2, 2)))


def test_resizing_is_pillows_bicubic_and_a_centre_crop(tmp_path: Path) -> None:
    root = tiny.folder(tmp_path / "set", each=2, size=(60, 90))
    out = everything(load_data(f"folder:{root}", "test", test=1.0, image_size=30))
    image = Image.fromarray(tiny.pixels(2, (60, 90), 0)[0]).resize((45, 30), Image.Resampling.BICUBIC)
    expected = as_unit(np.asarray(image)[None, :, 7:37])[0]
    assert (out[0] - expected).abs().max() < 1.01 / 255


def test_a_crop_that_keeps_less_is_cut_from_every_shape(tmp_path: Path) -> None:
    """Also where height and width happen to be the crop and the side it is cut from."""
    root = tiny.folder(tmp_path / "set", each=2, size=(28, 32))
    out = everything(load_data(f"folder:{root}", "test", test=1.0, image_size=28, crop=0.875))
    image = Image.fromarray(tiny.pixels(2, (28, 32), 0)[0]).resize((37, 32), Image.Resampling.BICUBIC)
    expected = as_unit(np.asarray(image)[None, 2:30, 4:32])[0]
    assert out.shape[2:] == (28, 28) and (out[0] - expected).abs().max() < 1.01 / 255


@pytest.mark.parametrize("layout", ["last", "first", "float", "grey"])
def test_npz_layouts(tmp_path: Path, layout: str) -> None:
    images = tiny.pixels(4)
    expected = as_unit(images)
    if layout == "first":
        images = images.transpose(0, 3, 1, 2)
    elif layout == "float":
        images = (images / np.float32(255)).astype(np.float32)
    elif layout == "grey":
        images = images[..., 0]
        expected = expected[:, :1].expand(-1, 3, -1, -1)
    np.savez(tmp_path / "a.npz", x=images, y=np.array([0, 1, 2, 1]))
    dataset = load_data(f"npz:{tmp_path}/a.npz", "test", test=1.0)
    assert torch.equal(everything(dataset), expected) and dataset.num_classes == 3


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.full((2, 4, 4, 3), 1.5), "y": [0, 1]}, r"must lie in \[0,1\]"),
        ({"x": np.full((2, 4, 4, 3), np.nan), "y": [0, 1]}, "NaN"),
        ({"x": np.zeros((2, 4, 4, 3), np.uint8), "y": [0]}, "2 images in 'x' but 1 labels"),
        ({"x": np.zeros((0, 4, 4, 3), np.uint8), "y": np.zeros(0, int)}, "holds no images"),
        ({"x": np.zeros((2, 4, 4, 5), np.uint8), "y": [0, 1]}, "1 or 3 channels"),
        ({"pictures": np.zeros(2)}, "holds pictures; expected"),
        ({"x": np.array([object()], dtype=object), "y": [0]}, "without running code"),
    ],
)
def test_npz_refusals(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=message):
        load_data(f"npz:{tmp_path}/a.npz", "test")


def test_relative_paths_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.npz(tmp_path / "a.npz")
    monkeypatch.setenv("HARDTACK_DATA", str(tmp_path))
    assert len(load_data("npz:a.npz", "test")) == 4
    monkeypatch.delenv("HARDTACK_DATA")
    with pytest.raises(UserError, match=r"no file or folder 'a\.npz'"):
        load_data("npz:a.npz", "test")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar11", "did you mean 'cifar10'"),
        ("folder", "needs a path: folder:PATH"),
        ("digits:here", "takes no path"),
        ("timm:hdfs/mnist", "did you mean 'hfds'"),
    ],
)
def test_wrong_names(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_data(name, "train")


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'hardtack\[hub\]'"):
        load_data("hfds/mnist", "train")


CIFAR_PARQUET = Path(os.environ.get("HARDTACK_DATA", "data")) / "cifar10"


@pytest.mark.skipif(not (CIFAR_PARQUET / "test.parquet").is_file(), reason="no cifar10/test.parquet in data")
def test_cifar10_as_parquet() -> None:
    test = load_data(f"parquet:{CIFAR_PARQUET}", "test")
    stored = pq.ParquetFile(CIFAR_PARQUET / "test.parquet").read(columns=["label"])["label"]
    assert test.labels.tolist() == stored.to_pylist() and test.num_classes == 10
    assert torch.bincount(test.labels).tolist() == [1000] * 10


class _Counted:
    """Image k is filled with k mod 251; the last one is broken if asked."""

    def __init__(self, broken: int = -1) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return 5000

    def read(self, index: int) -> np.ndarray:
        if index == self.broken:
            raise UserError(f"cannot read {index}")
        return np.full((4, 4, 3), index % 251, np.uint8)

    def where(self, index: int) -> str:
        return str(index)


def test_many_small_images_are_decoded_in_processes() -> None:
    rows = list(range(4999, -1, -1))
    out = decode_all(_Counted(), rows, None, (3, 4, 4))
    assert torch.equal(out[:, 0, 0, 0].long(), torch.tensor(rows) % 251)
    with pytest.raises(UserError, match="cannot read 4321"):
        decode_all(_Counted(broken=4321), rows, None, (3, 4, 4))
