"""ImageNet-C, Tiny-ImageNet-C and folders like them: labels by synset, images as stored, layouts explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_official as tiny
import torch
from PIL import Image

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.data.official import OfficialC, mark_regenerated, open_official
from hardtack.data.official.synsets import synsets

LATE = ("n01440764", "n02110958", "n15075141")
"""Classes 0, 254 and 999."""


def opened(path: Path, **options: str) -> OfficialC:
    found = open_official(path, **options)  # type: ignore[arg-type]
    assert isinstance(found, OfficialC)
    return found


@pytest.mark.parametrize("group", ["", "weather"])
def test_labels_come_from_the_synset_and_pixels_from_the_file(tmp_path: Path, group: str) -> None:
    root = tiny.imagenet_c(tmp_path / "ImageNet-C", ("fog", "snow"), names=LATE, group=group, each=2)
    files = opened(root)
    assert (files.kind, files.source, files.types) == ("imagenet_c", "official", ("snow", "fog"))
    assert files.classes == synsets() and len(files.missing) == 13 and "3 of 1000 classes" in files.description
    dataset = files.dataset("fog", 4)
    assert dataset.labels.tolist() == [0, 0, 254, 254, 999, 999] and dataset.image_shape == (3, 224, 224)
    assert dataset.num_classes == 1000 and dataset.source == "official"
    assert "fog, severity 4, 6 of 50,000 images of 3 classes; 224×224 as stored" in dataset.description
    file = root / group / "fog" / "4" / "n02110958" / "ILSVRC2012_val_00000001.JPEG"
    with Image.open(file) as image:
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    assert torch.equal(dataset.batch([3]).x[0], expected)
    named = load_data(f"imagenet_c:{root}/fog/4", "test", stream=True, workers=0)
    assert named.streamed and torch.equal(named.batch(range(6)).x, dataset.batch(range(6)).x)


def test_a_group_can_be_named_itself(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "ImageNet-C", ("fog",), group="weather")
    assert opened(root / "weather").types == ("fog",)
    mark_regenerated(root)
    assert opened(root / "weather").source == opened(root).source == "regenerated"


def test_tiny_imagenet_c_has_two_hundred_classes_by_sorted_names(tmp_path: Path) -> None:
    names = [f"n{number:08d}" for number in range(200)]
    root = tiny.imagenet_c(tmp_path / "Tiny-ImageNet-C", names=names, side=64)
    files = opened(root)
    assert (files.kind, files.source) == ("tiny_imagenet_c", "official") and files.classes == tuple(names)
    assert files.dataset("fog", 1).labels.tolist() == list(range(200))
    (root / "fog" / "2" / names[7] / "ILSVRC2012_val_00000000.JPEG").unlink()
    (root / "fog" / "2" / names[7]).rmdir()
    with pytest.raises(UserError, match=r"n00000007 is in one only.*same"):
        files.dataset("fog", 2)
    with pytest.raises(UserError, match="3 class folders; Tiny-ImageNet has 200"):
        open_official(tiny.imagenet_c(tmp_path / "part", side=64))


def test_a_folder_of_other_classes_is_the_users_own(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "mine", names=("dog", "cat"), side=40)
    files = opened(root)
    assert (files.kind, files.source, files.classes) == ("corrupted", "own", ("cat", "dog"))
    assert "user's own" in files.description and files.dataset("fog", 5).labels.tolist() == [0, 1]
    assert load_data(f"corrupted:{root}/fog/5", "test").source == "own"
    with pytest.raises(UserError, match=r"cat, dog of its 2 class folders are not among ImageNet's 1000 synsets"):
        open_official(root, kind="imagenet_c")
    # synsets of ImageNet may be numbered by their sorted names too, when that is what the model knows
    some = opened(tiny.imagenet_c(tmp_path / "some", names=LATE), kind="corrupted")
    assert some.dataset("fog", 1).labels.tolist() == [0, 1, 2]


def test_unknown_synsets_are_named(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "set", names=(*LATE, "n99999999"))
    with pytest.raises(UserError, match=r"n99999999 of its 4 class folders are not among.*corrupted:"):
        open_official(root)


def test_images_of_another_size_are_refused_even_if_only_one_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is 299×299, but every image of ImageNet-C is 224×224"):
        open_official(tiny.imagenet_c(tmp_path / "large", side=299))
    root = tiny.imagenet_c(tmp_path / "set")
    odd = root / "fog" / "3" / tiny.SYNSETS[2] / "ILSVRC2012_val_00000000.JPEG"
    Image.new("RGB", (225, 224)).save(odd)
    files = opened(root)
    with pytest.raises(UserError, match=r"n01484850.*is 225×224, but every image of ImageNet-C is 224×224"):
        files.dataset("fog", 3, image_size=224)
    assert files.dataset("fog", 2, image_size=32).image_shape == (3, 32, 32)


def test_missing_severities_are_named(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "set", severities=(1, 3, 5))
    with pytest.raises(UserError, match=r"lacks the severity folder 2 and 4 \(found 1, 3, 5\)"):
        open_official(root)
    flat = tmp_path / "flat"
    tiny.class_folders(flat / "fog", tiny.SYNSETS)
    with pytest.raises(UserError, match=r"n01440764.* where its severity folders 1 … 5 should be"):
        open_official(flat)


def test_images_without_class_folders_and_empty_folders(tmp_path: Path) -> None:
    for severity in range(1, 6):
        (tmp_path / "loose" / "fog" / str(severity)).mkdir(parents=True)
        Image.new("RGB", (224, 224)).save(tmp_path / "loose" / "fog" / str(severity) / "1.JPEG")
        (tmp_path / "empty" / "fog" / str(severity) / "n01440764").mkdir(parents=True)
    with pytest.raises(UserError, match="1 images without class folders"):
        open_official(tmp_path / "loose")
    with pytest.raises(UserError, match="1 class folders, no image"):
        open_official(tmp_path / "empty")


def test_one_level_too_low_or_too_high(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "ImageNet-C")
    for path, message in (
        (root / "fog", f"is one type; name the folder that holds the types: {root}$"),
        (root / "fog" / "3", f"is one severity of one type; name the folder that holds the types: {root}$"),
        (root / "fog" / "3" / tiny.SYNSETS[0], "images without class folders"),
        (tmp_path, f"one level too high: it holds ImageNet-C, TYPE/SEVERITY/CLASS/IMAGE; name {root}$"),
    ):
        with pytest.raises(UserError, match=message):
            open_official(path)


def test_a_type_stored_twice_is_ambiguous(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "set")
    tiny.imagenet_c(root, group="weather")
    with pytest.raises(UserError, match="has 'fog' twice"):
        open_official(root)


def test_archives_that_are_not_extracted(tmp_path: Path) -> None:
    root = tiny.imagenet_c(tmp_path / "ImageNet-C")
    (tmp_path / "downloads").mkdir()
    for name in ("noise", "weather"):
        tiny.tar_of(root / "fog", tmp_path / "downloads" / f"{name}.tar")
    with pytest.raises(UserError, match=r"not extracted yet \(noise.tar, weather.tar\): tar -xf .*noise.tar -C"):
        open_official(tmp_path / "downloads")
    with pytest.raises(UserError, match=r"noise.tar is an archive; extract it \(tar -xf"):
        open_official(tmp_path / "downloads" / "noise.tar")
    arrays = tiny.tar_of(tiny.cifar_c(tmp_path / "CIFAR-10-C"), tmp_path / "downloads" / "CIFAR-10-C.tar")
    with pytest.raises(UserError, match=f"too high: it holds CIFAR-10-C.tar, one .npy per type.*; name {arrays}"):
        open_official(tmp_path / "downloads")
    packed = tiny.tar_of(root, tmp_path / "CIFAR-10-C.tar.gz", mode="w:gz")
    with pytest.raises(UserError, match="is an archive; extract it"):
        open_official(packed)
    (tmp_path / "fake.tar").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read as an uncompressed"):
        open_official(tmp_path / "fake.tar")


def test_what_is_there_and_what_was_expected(tmp_path: Path) -> None:
    tiny.cifar_c(tmp_path / "CIFAR-10-C")
    tree = tiny.imagenet_c(tmp_path / "ImageNet-C")
    with pytest.raises(UserError, match=r"one .npy per type.*as in CIFAR-10-C or CIFAR-100-C; ImageNet-C is TYPE/SEV"):
        open_official(tmp_path / "CIFAR-10-C", kind="imagenet_c")
    with pytest.raises(UserError, match=r"TYPE/SEVERITY/CLASS/IMAGE, as in ImageNet-C.*ImageNet-A is CLASS/IMAGE"):
        open_official(tree, kind="imagenet_a")
    (tmp_path / "other" / "gaussian_nois").mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"holds gaussian_nois \(did you mean 'gaussian_noise'\?\); expected.*zenodo.org/record/2235448"
    ):
        open_official(tmp_path / "other", kind="imagenet_c")
    with pytest.raises(UserError, match=r"no official files 'imagenet-c'.*did you mean 'imagenet_c'"):
        open_official(tree, kind="imagenet-c")
    with pytest.raises(UserError, match=r"no file or folder.*did you mean 'ImageNet-C'"):
        open_official(tmp_path / "imagenetc")
