"""Folders that are sent to another machine and back."""

import pytest

from hardtack.base.errors import UserError
from hardtack.engine.mirror import Mirror, read_folders, write_files


def test_folders_arrive_as_they_were(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "run" / "checkpoints").mkdir(parents=True)
    (here / "run" / "checkpoints" / "last").write_bytes(b"weights")
    (here / "cell.json").write_text("{}")
    (here / "other").mkdir()
    (here / "other" / "file").write_text("stays")
    files = read_folders(here, [here / "run", here / "cell.json", here / "missing"])
    assert sorted(files) == ["cell.json", "run/checkpoints/last"]
    write_files(there, files)
    assert (there / "run" / "checkpoints" / "last").read_bytes() == b"weights"


def test_changes_are_new_changed_and_removed_files(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    mirror = Mirror(tmp_path)
    assert mirror.changes() == {}
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_text("changed")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c").write_text("new")
    for name in (".lock", "x.part"):
        (tmp_path / f"run{name}").write_text("left out")
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert mirror.changes() == {"a": b"changed", "b": None, "deep/c": b"new"}
    assert mirror.changes() == {}


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_paths_that_lead_out_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="leads out"):
        write_files(tmp_path / "root", {name: b""})
    assert not (tmp_path / "outside").exists()


def test_a_removed_file_is_removed_there(tmp_path):
    (tmp_path / "a").write_text("1")
    write_files(tmp_path, {"a": None, "never/was": None})
    assert not (tmp_path / "a").exists()
