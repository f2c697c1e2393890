"""Splits: disjoint, stratified, fixed by their seed; short versions; the bundled digits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.base.limits import read_npz
from hardtack.data import DataConfig, digits, load_data
from hardtack.data.splitting import first_rows, stratified_cut
from processes import environment


def test_the_cut_is_disjoint_complete_stratified_and_seeded() -> None:
    labels = torch.tensor([0] * 100 + [1] * 40 + [2] * 7)
    rest, held = stratified_cut(labels, 0.1, 0, ("a", "b", "c"))
    assert sorted(rest.tolist() + held.tolist()) == list(range(147))
    assert torch.bincount(labels[held]).tolist() == [10, 4, 1]
    assert torch.equal(stratified_cut(labels, 0.1, 0, ("a", "b", "c"))[1], held)
    assert not torch.equal(stratified_cut(labels, 0.1, 1, ("a", "b", "c"))[1], held)


def test_a_class_with_one_image_cannot_be_cut() -> None:
    with pytest.raises(UserError, match="class 'b' has a single image"):
        stratified_cut(torch.tensor([0, 0, 0, 1]), 0.1, 0, ("a", "b"))


def test_first_rows_as_stored_or_evenly_by_class() -> None:
    assert first_rows(torch.tensor([1, 0, 1, 1, 0]), 3).tolist() == [0, 1, 2]
    assert first_rows(torch.tensor([0, 0, 0, 1, 1, 1]), 4).tolist() == [0, 1, 3, 4]


def test_digits_are_what_they_were() -> None:
    train, validation, test = (load_data("digits", split) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (1295, 143, 359)
    assert not set(train.index.tolist()) & set(validation.index.tolist())
    whole = load_data("digits", "train", validation=0)
    assert len(whole) == 1438 and torch.bincount(test.labels).min() >= 35
    x = test.batch(torch.arange(len(test))).x
    assert x.shape[1:] == (3, 32, 32) and x.min() == 0 and x.max() == 1
    assert torch.equal(x[:, 0], x[:, 1])
    assert load_data("digits", "train", limit=20).index.tolist() == train.index[:20].tolist()


def test_the_stored_digits_are_those_of_scikit_learn() -> None:
    original = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits()
    stored = read_npz(digits.FILE)
    assert np.array_equal(stored["images"], original.images) and np.array_equal(stored["labels"], original.target)


def test_digits_are_read_without_scikit_learn() -> None:
    """Importing it takes longer than measuring a small model; nor is it among the packages that hardtack requires."""
    code = "import sys; from hardtack.data import load_data; load_data('digits', 'test'); "
    code += "assert not {'sklearn', 'scipy', 'pandas'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_digits_can_be_told_apart() -> None:
    """Nearest centroids are right nine times in ten: labels and images belong together."""
    train, test = load_data("digits", "train"), load_data("digits", "test")
    x, y = train.batch(torch.arange(len(train)))[:2]
    centres = torch.stack([x[y == c].mean(0).flatten() for c in range(10)])
    a, b = test.batch(torch.arange(len(test)))[:2]
    assert (torch.cdist(a.flatten(1), centres).argmin(1) == b).float().mean() > 0.85


def test_settings_are_checked() -> None:
    assert build(DataConfig, {"name": "digits", "validation": 0.2}).validation == 0.2
    with pytest.raises(UserError, match="validation must be a share"):
        DataConfig(validation=1.0)
    with pytest.raises(UserError, match="did you mean 'image_size'"):
        load_data("digits", "train", imagesize=3)
    with pytest.raises(UserError, match=r"set data\.validation above 0"):
        load_data("digits", "validation", validation=0)
    with pytest.raises(UserError, match="did you mean 'train'"):
        load_data("digits", "trian")  # type: ignore[arg-type]
    assert load_data(DataConfig(name="digits"), "test", image_size=16).image_shape == (3, 16, 16)
