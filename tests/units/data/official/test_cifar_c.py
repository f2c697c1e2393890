"""CIFAR-10-C and -100-C: the right rows of memory-mapped arrays, and refusals that say what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_official as tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.data.official import OfficialC, checksums, mark_regenerated, open_official


def opened(path: Path, **options: str) -> OfficialC:
    found = open_official(path, **options)  # type: ignore[arg-type]
    assert isinstance(found, OfficialC)
    return found


@pytest.mark.parametrize("archive", [False, True])
def test_every_severity_has_its_rows_and_labels(tmp_path: Path, archive: bool) -> None:
    folder = tiny.cifar_c(tmp_path / "CIFAR-10-C", ("snow", "fog", "spatter"))
    files = opened(tiny.tar_of(folder, tmp_path / "CIFAR-10-C.tar") if archive else folder)
    assert (files.kind, files.source, files.class_subset) == ("cifar10c", "official", None)
    assert files.types == ("snow", "fog", "spatter") and files.severities == (1, 2, 3, 4, 5)
    assert files.classes[:2] == ("airplane", "automobile")
    everything = np.load(folder / "fog.npy")
    for severity in files.severities:
        dataset = files.dataset("fog", severity)
        assert dataset.image_shape == (3, 32, 32) and dataset.source == "official" and dataset.split == "test"
        expected = everything[(severity - 1) * 10 : severity * 10].transpose(0, 3, 1, 2)
        assert torch.equal(dataset.batch(range(10)).x, torch.from_numpy(expected.copy()).float() / 255)
        assert dataset.labels.tolist() == list(range(10)) and dataset.index.tolist() == list(range(10))
        assert f"fog, severity {severity}, 10 of 10,000 images" in dataset.description


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    files = opened(tiny.cifar_c(tmp_path / "set"))
    assert len(files.missing) == 13 and "frost" in files.missing and "fog" not in files.missing
    assert "official CIFAR-10-C files" in files.description
    assert "2 of 15 common types (without gaussian_noise," in files.description
    with pytest.raises(UserError, match=r"no type 'fogg' \(did you mean 'fog'\?\); it has snow, fog"):
        files.dataset("fogg", 1)
    with pytest.raises(UserError, match="severity must be 1, 2, 3, 4 or 5, found 6"):
        files.dataset("fog", 6)


def test_cifar100_by_its_labels_or_by_its_name(tmp_path: Path) -> None:
    by_labels = opened(tiny.cifar_c(tmp_path / "a", classes=100))
    assert by_labels.kind == "cifar100c" and by_labels.classes[-1] == "worm" and len(by_labels.classes) == 100
    assert opened(tiny.cifar_c(tmp_path / "CIFAR-100-C")).kind == "cifar100c"
    with pytest.raises(UserError, match="labels go up to 90, but CIFAR-10-C has 10 classes; is it CIFAR-100-C"):
        open_official(tmp_path / "a", kind="cifar10c")


def test_opening_copies_nothing_and_using_copies_one_severity(tmp_path: Path) -> None:
    folder = tiny.cifar_c(tmp_path / "set")
    files = opened(folder)
    stored = files.stored("fog", 2)
    later = np.lib.format.open_memmap(folder / "fog.npy", mode="r+")
    later[10:20] = 77  # what is mapped is the file itself, so it shows
    later.flush()
    assert isinstance(stored.images, torch.Tensor) and bool((stored.images == 77).all())
    assert files.dataset("fog", 2, limit=3).batch(range(3)).x.unique().tolist() == [pytest.approx(77 / 255)]


def test_the_full_size_is_whole_and_its_labels_are_compared_with_the_published_ones(tmp_path: Path) -> None:
    folder = tiny.cifar_c(tmp_path / "CIFAR-10-C", (), each=10_000, classes=10)
    with (folder / "fog.npy").open("wb") as file:  # a sparse file: the official shape without its 150 MB
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": (50_000, 32, 32, 3)}
        )
        file.truncate(file.tell() + 50_000 * 32 * 32 * 3)
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5))
    description = opened(folder).description
    assert "10,000 images in each of 5 severities" in description
    assert "labels.npy is not the published file" in description
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 7, 5))
    with pytest.raises(UserError, match="7 classes unevenly; CIFAR-10-C has 10 classes with 1,000 images each"):
        open_official(folder)


def test_verify_names_the_files_that_are_not_the_published_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(tiny.cifar_c(tmp_path / "set"))
    assert files.verify() == ("snow", "fog", "labels")
    sums = {name: tiny_md5(tmp_path / "set" / f"{name}.npy") for name in ("fog", "labels")}
    monkeypatch.setitem(checksums.PUBLISHED, "cifar10c", sums)
    assert files.verify() == ("snow",)
    assert opened(tiny.tar_of(tmp_path / "set", tmp_path / "set.tar")).verify() == ("snow",)


def tiny_md5(file: Path) -> str:
    import hashlib

    return hashlib.md5(file.read_bytes()).hexdigest()


def test_regenerated_files_are_never_official(tmp_path: Path) -> None:
    folder = tiny.cifar_c(tmp_path / "CIFAR-10-C")
    mark_regenerated(folder, seed=3)
    for place in (folder, tiny.tar_of(folder, tmp_path / "CIFAR-10-C.tar")):
        files = opened(place)
        assert (files.kind, files.source) == ("cifar10c", "regenerated")
        assert "CIFAR-10-C regenerated (seed 3), not the official files" in files.description
        dataset = load_data(f"cifar10c:{place}/fog/3", "test")
        assert dataset.source == "regenerated" and dataset.subset([0]).source == "regenerated"


def test_files_of_ones_own_in_the_same_layout(tmp_path: Path) -> None:
    folder = tiny.cifar_c(tmp_path / "mine", classes=200, side=48)
    with pytest.raises(UserError, match=r"48 pixels with labels up to 180.*kind='corrupted'"):
        open_official(folder)
    files = opened(folder, kind="corrupted")
    assert files.source == "own" and len(files.classes) == 181 and files.dataset("fog", 1).image_shape == (3, 48, 48)
    mark_regenerated(folder, classes=[f"class {number}" for number in range(200)])
    files = opened(folder)
    assert (files.kind, files.source) == ("corrupted", "regenerated") and files.classes[7] == "class 7"


def _rows(folder: Path) -> None:
    np.save(folder / "fog.npy", tiny.pixels(45, 32, 32, 3))


def _official_labels(folder: Path) -> None:
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5))


def _other_order(folder: Path) -> None:
    np.save(folder / "labels.npy", np.arange(50) // 5)


def _cut_off(folder: Path) -> None:
    data = (folder / "fog.npy").read_bytes()
    (folder / "fog.npy").write_bytes(data[:-100])


BROKEN = {
    "no labels": (lambda folder: (folder / "labels.npy").unlink(), r"2 .npy files but no labels.npy.*extract it too"),
    "fewer rows": (_rows, "45 rows but labels.npy has 50 labels"),
    "the labels of the whole set": (_official_labels, "50 rows but labels.npy has 50,000 labels"),
    "one severity": (_other_order, "the 50 labels do not repeat 5 times, once per severity"),
    "odd labels": (lambda folder: np.save(folder / "labels.npy", np.zeros(49, int)), r"shape \(49,\)"),
    "named labels": (lambda folder: np.save(folder / "labels.npy", np.array(["cat"] * 50)), "whole numbers"),
    "pickled": (lambda folder: np.save(folder / "labels.npy", np.array([{}] * 50)), "Python objects"),
    "negative": (lambda folder: np.save(folder / "labels.npy", np.full(50, -1)), "negative label -1"),
    "floats": (lambda folder: np.save(folder / "fog.npy", np.zeros((50, 32, 32, 3))), "float64; expected uint8"),
    "channels first": (lambda folder: np.save(folder / "snow.npy", tiny.pixels(50, 3, 32, 32)), r"0, 2, 3, 1"),
    "another size": (lambda folder: np.save(folder / "fog.npy", tiny.pixels(50, 64, 64, 3)), "64 pixels; expected 32"),
    "grey": (lambda folder: np.save(folder / "fog.npy", tiny.pixels(50, 32, 32)), r"shape \(50, 32, 32\); expected"),
    "cut off": (_cut_off, "is cut off: 153,500 of 153,600 bytes"),
    "not an array": (lambda folder: (folder / "fog.npy").write_bytes(b"<html>"), "not a NumPy .npy file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_said(name: str, tmp_path: Path) -> None:
    folder = tiny.cifar_c(tmp_path / "CIFAR-10-C")
    spoil, message = BROKEN[name]
    spoil(folder)
    with pytest.raises(UserError, match=message):
        open_official(folder)


def test_extra_arrays_are_named_and_not_used(tmp_path: Path) -> None:
    folder = tiny.cifar_c(tmp_path / "set")
    np.save(folder / "blue_noise.npy", tiny.pixels(3, 2))
    assert "not used: blue_noise.npy" in opened(folder).description


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("fgo/3", r"no type 'fgo' \(did you mean 'fog'\?\)"),
        ("fog/7", "1, 2, 3, 4 or 5, found 7"),
        ("fog", r"should end in TYPE/SEVERITY, for example cifar10c:.*set/fog/3"),
        ("", r"should end in TYPE/SEVERITY, for example cifar10c:.*set/fog/3"),
    ],
)
def test_the_data_name_explains_its_path(path: str, message: str, tmp_path: Path) -> None:
    tiny.cifar_c(tmp_path / "set")
    with pytest.raises(UserError, match=message):
        load_data(f"cifar10c:{tmp_path}/set/{path}", "test")


def test_the_data_name_is_relative_to_the_root_and_for_measuring_only(tmp_path: Path) -> None:
    tiny.cifar_c(tmp_path / "CIFAR-10-C")
    dataset = load_data("cifar10c:CIFAR-10-C/fog/3", "test", root=str(tmp_path), limit=4)
    assert len(dataset) == 4 and dataset.classes[0] == "airplane"
    with pytest.raises(UserError, match="no train split, only test; it is for measuring"):
        load_data("cifar10c:CIFAR-10-C/fog/3", "train", root=str(tmp_path))
    with pytest.raises(UserError, match="did you mean 'cifar10c'"):
        load_data("cifar10-c:CIFAR-10-C/fog/3", "test")
    with pytest.raises(UserError, match="needs a path: cifar10c:PATH/TYPE/SEVERITY"):
        load_data("cifar10c", "test")
