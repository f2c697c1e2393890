"""Sets added to a training split: classes matched by name, copies that leave validation alone, clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from hardtack.base.config import build, parse_words, plain
from hardtack.base.errors import UserError
from hardtack.data import DataConfig, batches, load_data, load_training
from hardtack.data.sampler import SET
from hardtack.data.stores import Joined, Resident


def config(**values: Any) -> DataConfig:
    return build(DataConfig, values)


def test_extra_sets_are_added_with_their_classes_matched_by_name(tmp_path: Path) -> None:
    main = tiny.folder(tmp_path / "main", each=6)
    other = tiny.folder(tmp_path / "other", each=5, classes=("dog", "cat"), size=(48, 40))
    few = tiny.folder(tmp_path / "few", each=2, classes=("dog",))
    extra = [{"name": f"folder:{other}"}, {"name": f"folder:{few}", "limit": 1}]
    data = load_training(config(name=f"folder:{main}", extra=extra))
    own = load_data(config(name=f"folder:{main}"), "train")
    assert isinstance(data.store, Resident) and len(data) == len(own) + 10 + 1
    assert data.classes == ("cat", "dog") and data.image_shape == (3, 32, 32)
    assert torch.equal(data.labels, torch.cat([own.labels, torch.tensor([0] * 5 + [1] * 5 + [1])]))
    assert (data.index >= SET).sum() == 11 and len(data.index.unique()) == len(data)
    shown = data.batch(torch.arange(len(data)))
    assert torch.equal(shown.x[: len(own)], own.batch(torch.arange(len(own))).x)
    fitted = load_data(config(name=f"folder:{other}", image_size=32, test=1.0), "test")
    assert torch.equal(shown.x[len(own) : -1], fitted.batch(torch.arange(10)).x)
    assert f"10 of folder:{other}" in data.description
    # what is measured does not change
    assert len(load_data(config(name=f"folder:{main}", extra=extra), "train")) == len(own)


def test_streamed_and_decoded_sets_mix(tmp_path: Path) -> None:
    main = tiny.folder(tmp_path / "main", each=6)
    np.savez(tmp_path / "made.npz", x=tiny.pixels(4) / np.float32(255), y=np.array([0, 1, 1, 0]))
    settings = {"name": f"folder:{main}", "workers": 0, "validation": 0.2}
    extra = [{"name": f"npz:{tmp_path / 'made.npz'}"}]
    streamed = load_training(config(stream=True, extra=extra, **settings))
    resident = load_training(config(stream=False, extra=extra, **settings))
    assert isinstance(streamed.store, Joined) and isinstance(resident.store, Resident)
    both = [list(batches(data, 5, device="cpu", shuffle_seed=0)) for data in (streamed, resident)]
    for one, two in zip(*both, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True)) and one.x.dtype == torch.float32


def test_a_copy_leaves_out_what_validation_holds(tmp_path: Path) -> None:
    main = tiny.folder(tmp_path / "main", each=10)
    copied = tiny.folder(tmp_path / "copied", each=10)
    (main / "cat").rename(tmp_path / "keep")
    main_train = tmp_path / "split" / "train"
    main_train.mkdir(parents=True)
    (tmp_path / "keep").rename(main_train / "cat")
    (main / "dog").rename(main_train / "dog")
    name = f"folder:{main_train.parent}"
    data = load_training(config(name=name, validation=0.3, extra=[{"name": f"folder:{copied}", "copy": True}]))
    half = len(data) // 2
    assert half == 14 and torch.equal(data.index[:half], data.index[half:] - SET)
    x = data.batch(torch.arange(len(data))).x
    assert torch.equal(x[:half], x[half:])
    held = set(load_data(config(name=name, validation=0.3), "validation").index.tolist())
    assert held and held.isdisjoint((data.index % SET).tolist())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"extra": [{"name": "folder:birds"}]}, r"data\.extra\[0\].*class 'cats'.*did you mean 'cat'"),
        ({"extra": [{"name": "folder:fewer", "copy": True}]}, "too few to be a copy"),
        ({"extra": [{"name": "folder:shuffled", "copy": True}]}, "another class"),
        ({"extra": [{"name": "folder:nowhere"}]}, r"data\.extra\[0\]: folder: there is no"),
        ({"extra": [{"nam": "digits"}]}, r"extra\[0\]\.nam"),
        ({"synthetic": {"name": "npz:many.npz"}}, r"data\.synthetic.*5 classes"),
        ({"synthetic": {"name": "digits", "share": 1.0}}, r"share must lie in \(0, 1\)"),
        ({"repeats": 0}, "repeats must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    tiny.folder(tmp_path / "main", each=5)
    tiny.folder(tmp_path / "birds", classes=("cats", "dog"))
    tiny.folder(tmp_path / "fewer", each=2)
    tiny.folder(tmp_path / "shuffled", each=12, classes=("cat",))
    np.savez(tmp_path / "many.npz", x=tiny.pixels(5), y=np.arange(5))
    with pytest.raises(UserError, match=says):
        load_training(config(name="folder:main", root=str(tmp_path), **values))


def test_a_batch_too_small_for_the_share_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "made.npz", x=tiny.pixels(4, (8, 8)), y=np.zeros(4, dtype=int))
    data = load_training(config(name="digits", limit=20, synthetic={"name": f"npz:{tmp_path / 'made.npz'}"}))
    with pytest.raises(UserError, match="a batch of 1 cannot hold a share"):
        next(iter(batches(data, 1, device="cpu", shuffle_seed=0)))


def test_the_settings_are_written_on_the_command_line_and_read_back() -> None:
    words = ["data.extra=folder:a,folder:b", "data.synthetic=npz:c", "data.repeats=3"]
    made = build(DataConfig, parse_words(words)["data"])
    assert [extra.name for extra in made.extra] == ["folder:a", "folder:b"]
    assert made.synthetic is not None and made.synthetic.share == 0.5
    assert build(DataConfig, plain(made)) == made
