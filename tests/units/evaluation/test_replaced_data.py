"""A number belongs to its images: replaced ones are measured again, and moved ones are recalled."""

import shutil

import numpy as np
import pytest
import torch

import hardtack as ht
from hardtack.data import load_data
from hardtack.evaluation import identity
from hardtack.results import read_results
from stored_images import WRITERS
from tiny_runs import Linear


class Counting(Linear):
    shown = 0

    def forward(self, x):
        self.shown += len(x)
        return super().forward(x)


def measure(name, folder, **settings):
    model = Counting(classes=2)
    data = load_data(name, "test", test=1.0, workers=0, stream=True)
    settings = {"suite": "clean", **settings}
    return ht.evaluate(model, data, folder=folder, quiet=True, **settings), model.shown


@pytest.mark.parametrize("kind", WRITERS)
def test_replaced_images_are_measured_again(kind, tmp_path):
    name = WRITERS[kind](tmp_path / "data", range(12))
    first, _ = measure(name, tmp_path / "run")
    again, shown = measure(name, tmp_path / "run")
    assert shown == 0 and again.results == first.results, "unchanged images are recalled"
    shutil.rmtree(tmp_path / "data")
    WRITERS[kind](tmp_path / "data", range(100, 112))
    other, shown = measure(name, tmp_path / "run")
    fresh, _ = measure(name, tmp_path / "elsewhere")
    assert shown > 0 and other.id != first.id
    assert np.array_equal(other.verdicts["clean_confidence"], fresh.verdicts["clean_confidence"])


def as_version_010(monkeypatch):
    """Ids without a digest of streamed images."""
    monkeypatch.setattr(identity, "content_digest", lambda data: None)


def test_a_record_without_a_digest_is_recalled_if_its_predictions_are_repeated(tmp_path, monkeypatch, capsys):
    name = WRITERS["folder"](tmp_path / "data", range(12))
    with monkeypatch.context() as patch:
        as_version_010(patch)
        first, _ = measure(name, tmp_path / "run")
    again, shown = measure(name, tmp_path / "run")
    assert again.id == first.id and again.results == first.results and 0 < shown <= 32
    assert "12 of its predictions were repeated" in capsys.readouterr().err
    assert len(read_results(tmp_path / "run")) == len(first.results)


def test_a_record_without_a_digest_of_other_images_is_not_recalled(tmp_path, monkeypatch, capsys):
    name = WRITERS["folder"](tmp_path / "data", range(12))
    with monkeypatch.context() as patch:
        as_version_010(patch)
        first, _ = measure(name, tmp_path / "run")
    WRITERS["folder"](tmp_path / "data", range(100, 112))
    other, _ = measure(name, tmp_path / "run")
    fresh, _ = measure(name, tmp_path / "elsewhere")
    assert other.id == fresh.id != first.id
    assert "not those of the stored result" in capsys.readouterr().err
    assert np.array_equal(other.verdicts["clean_confidence"], fresh.verdicts["clean_confidence"])


# ---------------------------------------------------------------- official files


def write_official(folder, *, seed=0, count=12):
    """Files in CIFAR-10-C's layout."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "labels.npy", np.tile(np.arange(count) % 2, 5))
    np.save(folder / "fog.npy", generator.integers(0, 256, (5 * count, 32, 32, 3), dtype=np.uint8))


@pytest.fixture
def official(tmp_path, monkeypatch):
    from hardtack.data.official.marker import mark_regenerated

    def write(folder, **settings):
        write_official(folder, **settings)
        mark_regenerated(folder, seed=0)
        return folder

    return write


def corrupted(folder, files):
    x, y = torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
    model = Counting(classes=2, side=32)
    settings = {"suite": "corruptions", "types": ("fog",), "severities": (1, 2), "files": str(files)}
    return ht.evaluate(model, (x, y), folder=folder, quiet=True, **settings), model.shown


def test_official_files_are_known_by_their_content_not_by_their_path(tmp_path, official):
    first, _ = corrupted(tmp_path / "run", official(tmp_path / "a"))
    moved, shown = corrupted(tmp_path / "run", official(tmp_path / "b"))
    assert moved.id == first.id and shown == 0
    other, shown = corrupted(tmp_path / "run", official(tmp_path / "a", seed=1))
    assert other.id != first.id and shown > 0, "the same path, other images"


def test_a_record_with_the_path_in_its_id_is_recalled(tmp_path, official, monkeypatch):
    files = official(tmp_path / "a")

    def with_paths(views, data):
        return [[*view.identity(), *view.stored_in()] for view in views]

    with monkeypatch.context() as patch:
        patch.setattr(identity, "_shown", with_paths)
        first, _ = corrupted(tmp_path / "run", files)
    again, shown = corrupted(tmp_path / "run", files)
    assert again.id == first.id and shown <= 3 * 12
    official(tmp_path / "a", seed=1)
    other, _ = corrupted(tmp_path / "run", files)
    assert other.id != first.id
