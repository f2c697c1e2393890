"""A file appears whole or not at all."""

import os
import stat

import pytest

from hardtack.base.files import atomic, write_text


def test_the_file_appears_only_at_the_end(tmp_path):
    path = tmp_path / "deep" / "a.bin"
    with atomic(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" whole")
    assert path.read_bytes() == b"half whole"
    assert [item.name for item in path.parent.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file_and_no_litter(tmp_path, error):
    path = write_text(tmp_path / "a.txt", "old")
    with pytest.raises(error), atomic(path) as file:
        file.write(b"new")
        raise error
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_text_is_utf8_and_replaces(tmp_path):
    path = tmp_path / "a.txt"
    assert write_text(str(path), "ä × ü\n") == path
    write_text(path, "1\n")
    assert path.read_bytes() == b"1\n"


def test_the_mode_is_that_of_an_ordinary_file(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_text(tmp_path / "a.txt", "x")
        assert os.umask(0o027) == 0o027, "the umask is as it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_folder_in_the_way_is_an_error_without_litter(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "a", "x")
    assert [item.name for item in tmp_path.iterdir()] == ["a"]
