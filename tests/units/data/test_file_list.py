"""`data.test_list`: the test images of a folder by a list of files; a list is refused if it names anything else."""

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.studies.protocol_run import measure_protocol


def images(folder, count, seed=0):
    folder.mkdir(parents=True)
    for number, array in enumerate(tiny.pixels(count, (8, 8), seed=seed)):
        Image.fromarray(array).save(folder / f"{number}.png")


@pytest.fixture
def root(tmp_path):
    """train/ and val/ of two classes, as ImageNet has them; a file outside."""
    for split, count in (("train", 6), ("val", 4)):
        for place, name in enumerate(("ant", "bee")):
            images(tmp_path / "set" / split / name, count, seed=10 * (split == "val") + place)
    images(tmp_path / "outside", 1)
    return tmp_path


def listed(root, text, **settings):
    (root / "list.txt").write_text(text)
    return load_data(f"folder:{root}/set", "test", test_list=str(root / "list.txt"), **settings)


def test_the_images_come_in_the_order_of_the_list(root):
    data = listed(root, "# two of them\nbee/3.png\n\nant/0.png\n")
    assert len(data) == 2 and data.labels.tolist() == [1, 0] and data.classes == ("ant", "bee")
    stored = np.asarray(Image.open(root / "set/val/bee/3.png"))
    assert torch.equal(data.batch([0]).x[0], torch.tensor(stored.transpose(2, 0, 1)).float() / 255)
    assert "the 2 images of the list list.txt (sha256 " in data.description


def test_training_does_not_change_with_a_list_of_test_images(root):
    (root / "list.txt").write_text("bee/3.png\n")
    train = load_data(f"folder:{root}/set", "train", test_list=str(root / "list.txt"), validation=0)
    assert len(train) == 12


def test_a_list_is_looked_for_beside_the_data(root):
    (root / "some.txt").write_text("ant/1.png\n")
    assert len(load_data("folder:set", "test", root=str(root), test_list="some.txt")) == 1


def test_labels_may_be_written(root):
    data = listed(root, "bee/3.png bee\nant/0.png\t0\nant/1.png 0\n")
    assert data.labels.tolist() == [1, 0, 0]


def test_labels_are_needed_where_there_are_no_class_folders(root):
    images(root / "flat", 3)
    (root / "set/val").rename(root / "old")
    (root / "flat").rename(root / "set/val")
    assert listed(root, "2.png bee\n0.png 0").labels.tolist() == [1, 0]
    with pytest.raises(UserError, match=r"line 1: '0.png' lies in no class folder; write its class"):
        listed(root, "0.png")


def test_a_set_without_splits_is_split_by_the_list(root):
    (root / "list.txt").write_text("ant/0.png\nbee/5.png\n")
    settings = {"test_list": str(root / "list.txt"), "validation": 0}
    train, test = (load_data(f"folder:{root}/set/train", split, **settings) for split in ("train", "test"))
    assert len(train) == 10 and test.labels.tolist() == [0, 1] and "without the 2 images" in train.description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("../outside/0.png ant", r"line 1: '../outside/0.png' is no path inside the folder"),
        ("ant/0.png\nant/../../../outside/0.png", r"line 2: .* is no path inside"),
        ("/etc/passwd", "no path inside"),
        ("~/0.png", "no path inside"),
        ("C:/0.png", "no path inside"),
        ("ant\\0.png", "no path inside"),
        ("ant/0.png\0", "no path inside"),
        ("ant/00.png\nant/9.png", r"2 of its 2 files are no images in .*: ant/00.png \(line 1\), ant/9.png \(line 2\)"),
        ("ant/7.png\n" + "\n".join(f"bee/{n}.png" for n in range(4, 9)), r"6 of its 6 files .* and 3 more"),
        ("ant/0.png\nant/./0.png", "line 2: 'ant/0.png' is also in line 1"),
        ("ant/0.png bee", "lies in the folder of another class than 'bee'"),
        ("ant/0.png bea", r"there is no class 'bea' \(did you mean 'bee'\?\)"),
        ("ant/0.png 2", r"there is no class '2'.*a number 0 … 1"),
        ("ant/0.png " + "9" * 5000, "there is no class '999"),
        ("\n# nothing\n", "names no file"),
    ],
)
def test_a_wrong_line_is_named(root, text, message):
    with pytest.raises(UserError, match=message):
        listed(root, text)


def test_a_link_in_a_list_leads_nowhere(root):
    """A folder behind a link is no folder of images that the reader walks into, so a list cannot name its files."""
    (root / "set/val/ant/more").symlink_to(root / "outside", target_is_directory=True)
    with pytest.raises(UserError, match="no images in"):
        listed(root, "ant/more/0.png")


def test_a_list_needs_a_folder_and_must_exist(root):
    with pytest.raises(UserError, match=r"data.test_list chooses among the files of folder:PATH"):
        load_data("digits", "test", test_list=str(root / "list.txt"))
    with pytest.raises(UserError, match=r"data.test_list: there is no file or folder"):
        load_data(f"folder:{root}/set", "test", test_list=str(root / "lost.txt"))
    with pytest.raises(UserError, match=r"is no file"):
        load_data(f"folder:{root}/set", "test", test_list=str(root / "set"))


def test_a_list_that_is_too_large_is_not_read(root, monkeypatch):
    from hardtack.base import limits

    monkeypatch.setattr(limits, "JSON_BYTES", 10)
    with pytest.raises(UserError, match="larger than"):
        listed(root, "ant/0.png\nant/1.png")


PROTOCOL = """
version: 1
folders: {few: few.txt}
columns:
  clean: {suite: clean, metric: clean_accuracy, test_list: few}
  all: {suite: clean, metric: clean_accuracy}
"""


def test_a_protocol_uses_its_list_where_it_is_there(root):
    (root / "mine.yaml").write_text(PROTOCOL)
    words = {
        "protocol": root / "mine.yaml", "model": "vit_digits", "data": {"name": f"folder:{root}/set", "image_size": 32},
        "quiet": True,
    }  # fmt: skip

    def counts(output, **more):
        row = measure_protocol(output=str(root / output), **{**words, **more})
        return [result.n for result in row.results]

    assert counts("a") == [8, 8]
    (root / "few.txt").write_text("ant/2.png\nbee/1.png\nbee/0.png\n")
    beside = {**words["data"], "root": str(root)}
    assert counts("b", data=beside) == [3, 8]  # found under its usual name
    assert counts("c", folders={"few": str(root / "few.txt")}) == [3, 8]
    (root / "few.txt").write_text("ant/200.png\n")
    assert counts("d", data=beside) == [8, 8]  # a list of other images: not for this data
    with pytest.raises(UserError, match=r"ant/200.png \(line 1\)"):
        counts("e", folders={"few": str(root / "few.txt")})
