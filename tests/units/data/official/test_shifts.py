"""ImageNet-A, -R, -V2 and -Sketch: labels among the 1000 classes, and the 200 that A and R are about."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_official as tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.data.official import Shift, open_official
from hardtack.data.official.synsets import class_index, subset, synsets


def opened(path: Path, **options: str) -> Shift:
    found = open_official(path, **options)  # type: ignore[arg-type]
    assert isinstance(found, Shift)
    return found


def test_the_lists_that_timm_ships() -> None:
    assert len(synsets()) == 1000 and list(synsets()) == sorted(synsets())
    assert class_index()["n01440764"] == 0 and class_index()["n15075141"] == 999
    for name, first, last in (("imagenet_a", [6, 11, 13], 988), ("imagenet_r", [1, 2, 4], 988)):
        chosen = subset(name)
        assert chosen is not None and chosen.dtype == torch.int64 and len(chosen) == 200
        assert chosen[:3].tolist() == first and int(chosen[-1]) == last and bool((chosen.diff() > 0).all())
    assert subset("imagenet_v2") is None


@pytest.mark.parametrize("kind", ["imagenet_a", "imagenet_r"])
def test_two_hundred_classes_are_recognised_and_restrict_the_logits(kind: str, tmp_path: Path) -> None:
    files = opened(tiny.class_folders(tmp_path / "pictures", synsets(kind), side=(20, 30)))
    assert (files.kind, files.source, files.types, files.severities) == (kind, "official", (), ())
    dataset = files.dataset(image_size=16)
    assert dataset.image_shape == (3, 16, 16) and dataset.num_classes == 1000 and len(dataset) == 200
    assert torch.equal(dataset.labels, subset(kind)) and "200 of " in dataset.description
    assert torch.equal(dataset.class_subset, files.class_subset) and torch.equal(dataset.class_subset, subset(kind))
    # a model that is right among the 200 and wrong among the 1000
    logits = torch.nn.functional.one_hot(dataset.labels, 1000).float()
    logits[:, 0] = 2
    assert 0 not in dataset.class_subset.tolist()
    restricted = logits[:, dataset.class_subset].argmax(1)
    assert torch.equal(restricted, torch.searchsorted(dataset.class_subset, dataset.labels))
    assert dataset.first(5).class_subset is dataset.class_subset


def test_a_part_needs_a_name(tmp_path: Path) -> None:
    some = synsets("imagenet_a")[:3]
    folder = tiny.class_folders(tmp_path / "some", some, side=32)
    with pytest.raises(UserError, match=r"3 folders, 3 of them ImageNet synsets, but neither the 200.*imagenet_a:PATH"):
        open_official(folder)
    files = opened(folder, kind="imagenet_a")
    assert files.class_subset is not None and len(files.class_subset) == 200 and "3 of 200 classes" in files.description
    assert load_data(f"imagenet_a:{folder}", "test").labels.tolist() == [6, 11, 13]
    assert opened(tiny.class_folders(tmp_path / "imagenet-a", some, side=32)).kind == "imagenet_a"
    foreign = sorted(set(synsets("imagenet_a")) - set(synsets("imagenet_r")))[0]
    tiny.class_folders(folder, [foreign], side=32)
    with pytest.raises(UserError, match=rf"1 of its 4 folders, {foreign} first, are not among the 200 classes of"):
        open_official(folder, kind="imagenet_r")
    whole = tiny.class_folders(tmp_path / "whole", synsets("imagenet_r"), side=8)
    with pytest.raises(UserError, match=r"are not among the 200 classes of ImageNet-A; is it ImageNet-R\?"):
        open_official(whole, kind="imagenet_a")


def test_v2_by_class_number_not_by_sorted_name(tmp_path: Path) -> None:
    names = ("0", "1", "10", "2", "999")
    folder = tiny.class_folders(tmp_path / "imagenetv2-matched-frequency-format-val", names, side=32)
    files = opened(folder)
    dataset = files.dataset()
    assert files.kind == "imagenet_v2" and files.class_subset is None and dataset.labels.tolist() == [0, 1, 2, 10, 999]
    assert "imagenetv2-matched-frequency-format-val" in dataset.description
    (folder / "1000").mkdir()
    with pytest.raises(UserError, match="a folder '1000'; ImageNet-V2's folders are the classes 0 … 999"):
        open_official(folder)


def test_sketch_and_not_the_validation_set_itself(tmp_path: Path) -> None:
    files = opened(tiny.class_folders(tmp_path / "sketch", tiny.SYNSETS, side=32, stem="sketch_"))
    assert files.kind == "imagenet_sketch" and "3 of 1000 classes" in files.description
    assert files.dataset().labels.tolist() == [0, 1, 2]
    original = tiny.class_folders(tmp_path / "val", tiny.SYNSETS, side=32, stem="ILSVRC2012_val_")
    with pytest.raises(UserError, match=r"ImageNet's own validation set.*folder:PATH"):
        open_official(original, kind="imagenet_sketch")


def test_sizes_differ_so_one_must_be_given(tmp_path: Path) -> None:
    folder = tiny.class_folders(tmp_path / "imagenet-r", ["n01443537"], side=(20, 30))
    tiny.class_folders(folder, ["n01484850"], side=(30, 20))
    with pytest.raises(UserError, match=r"set data.image_size"):
        load_data(f"imagenet_r:{folder}", "test")
    assert len(load_data(f"imagenet_r:{folder}", "test", image_size=16)) == 2


def test_a_folder_too_high_and_folders_without_images(tmp_path: Path) -> None:
    folder = tiny.class_folders(tmp_path / "data" / "imagenet-a", synsets("imagenet_a")[:3], side=32)
    with pytest.raises(UserError, match=f"one level too high: it holds imagenet-a, CLASS/IMAGE; name {folder}"):
        open_official(folder.parent, kind="imagenet_a")
    (tmp_path / "bare" / "n01440764").mkdir(parents=True)
    with pytest.raises(UserError, match="holds n01440764; expected CLASS/IMAGE; get ImageNet-R from"):
        open_official(tmp_path / "bare", kind="imagenet_r")
