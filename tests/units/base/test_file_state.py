"""The state of files and folders: equal exactly where nothing was changed."""

import os
import time

import pytest

from hardtack.base import file_state as module
from hardtack.base.file_state import ABSENT, file_state, settled


@pytest.fixture
def folder(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345678")
    return tmp_path


def _rewrite(folder):
    """The same size, and the old time of the content."""
    file = folder / "a" / "1.png"
    before = file.stat()
    file.write_bytes(b"87654321")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "content": _rewrite,
    "added": lambda folder: (folder / "b" / "0.png").write_bytes(b""),
    "removed": lambda folder: (folder / "b" / "1.png").unlink(),
    "renamed": lambda folder: (folder / "b" / "1.png").rename(folder / "b" / "9.png"),
    "moved": lambda folder: (folder / "a" / "2.png").rename(folder / "b" / "2.png"),
    "replaced": lambda folder: os.replace(folder / "a" / "1.png", folder / "a" / "2.png"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_below_a_folder_shows(folder, name):
    before = file_state(folder)
    assert before == file_state(str(folder)) and before[:1] == ["folder"]
    time.sleep(0.05)
    CHANGES[name](folder)
    assert file_state(folder) != before


def test_a_file_that_is_replaced_changed_or_absent(folder):
    file = folder / "a" / "1.png"
    before = file_state(file)
    assert before == file_state(file)
    (folder / "link").symlink_to(file)
    assert file_state(folder / "link") == before, "a link is what it leads to"
    time.sleep(0.05)
    _rewrite(folder)
    assert file_state(file) != before
    file.unlink()
    assert file_state(file) == file_state(file / "below") == ABSENT


def test_what_cannot_be_known_has_no_state(folder, monkeypatch):
    assert file_state("/dev/null") is None
    monkeypatch.setattr(module, "MOST_FILES", 2)
    assert file_state(folder) is None


def test_a_recent_change_is_not_settled(folder):
    state = file_state(folder / "a" / "1.png")
    changed = state[-1]
    assert not settled(state, before_ns=changed) and not settled(state, before_ns=changed + 10**7)
    assert settled(state, before_ns=changed + 10**9) or changed % 10**9 == 0
    assert settled(ABSENT, before_ns=0)
    whole = ["file", 1, 1, 5 * 10**9, 5 * 10**9]  # a file system that keeps whole seconds
    assert not settled(whole, before_ns=6 * 10**9) and settled(whole, before_ns=8 * 10**9)
    assert file_state(folder)[-1] >= changed, "of a folder: the last change of all its files"
