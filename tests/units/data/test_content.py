"""The digest of images that are decoded while they are read changes with every pixel, and with nothing else."""

import shutil

import pytest
import torch

from hardtack.data import load_data
from hardtack.data.content import content_digest
from stored_images import WRITERS, write_folder, write_parquet


def digest(name, **settings):
    return content_digest(load_data(name, "test", test=1.0, workers=0, **{"stream": True, **settings}))


@pytest.mark.parametrize("kind", WRITERS)
def test_one_other_image_of_the_same_size_and_time_gives_another_digest(kind, tmp_path):
    first = digest(WRITERS[kind](tmp_path / "a", range(6)))
    assert first == digest(WRITERS[kind](tmp_path / "b", range(6))), "the place does not matter"
    shutil.rmtree(tmp_path / "a")
    other = digest(WRITERS[kind](tmp_path / "a", [0, 1, 2, 99, 4, 5]))
    assert other != first


def test_a_large_parquet_file_is_digested_by_row_groups(tmp_path):
    name = write_parquet(tmp_path / "a", range(6))
    assert digest(name, memory_limit_mb=0) == digest(name)


def test_only_the_images_in_question_count(tmp_path):
    name = write_folder(tmp_path / "a", range(6))
    data = load_data(name, "test", test=1.0, workers=0, stream=True)
    part = content_digest(data.subset([0, 1]))
    write_folder(tmp_path / "a", [0, 1, 2, 3, 4, 99])
    assert content_digest(load_data(name, "test", test=1.0, workers=0, stream=True).subset([0, 1])) == part


def test_images_in_memory_have_no_digest_of_their_own(tmp_path):
    assert digest(write_folder(tmp_path / "a", range(4)), stream=False) is None


def test_readers_without_stored_bytes_are_decoded(tmp_path):
    data = load_data(write_folder(tmp_path / "a", range(4)), "test", test=1.0, workers=0, stream=True)

    class Decoded:
        def __init__(self, images):
            self.images = images

        def __len__(self):
            return len(self.images)

        def read(self, index):
            return self.images.read(index)

        def where(self, index):
            return ""

    data.store.images = Decoded(data.store.images)
    first = content_digest(data)
    assert first == content_digest(data)
    write_folder(tmp_path / "a", [0, 1, 2, 7])
    assert content_digest(data) != first and isinstance(first, str) and torch.is_tensor(data.rows)
