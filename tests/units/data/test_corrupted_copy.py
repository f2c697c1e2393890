"""A corrupted copy is a job of the engine: killed anywhere and repeated, it ends with the same files."""

import pytest

from hardtack.data import corrupted_copy
from hardtack.data.corrupted_copy import corrupt_data
from tiny_runs import files_below


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(corrupted_copy, "_PIECE", 2)


def copy(folder, layout):
    types = {"types": ["contrast", "fog"], "layout": layout, "n": 5, "data": {"workers": 0}}
    return corrupt_data("digits", folder, types, quiet=True)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


@pytest.mark.parametrize("layout", ["npy", "folder", "parquet"])
@pytest.mark.parametrize("calls", [0, 7, 21])
def test_a_killed_copy_goes_on_where_it_stopped(tmp_path, monkeypatch, layout, calls):
    copy(tmp_path / "whole", layout)
    made, corrupt = [], corrupted_copy.corrupt

    def counted(x, *args, **settings):
        made.append(len(x))
        if len(made) > limit:
            raise KeyboardInterrupt
        return corrupt(x, *args, **settings)

    monkeypatch.setattr(corrupted_copy, "corrupt", counted)
    limit = calls
    with pytest.raises(KeyboardInterrupt):
        copy(tmp_path / "killed", layout)
    first, made[:], limit = len(made) - 1, [], 10**6
    copy(tmp_path / "killed", layout)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    sheet, whole = 2 * 5, 2 * 5 * 3  # calls for the contact sheet, and for two types, five severities, three pieces
    lost = 5 if layout == "npy" else 1  # a piece of layout=npy is one type at all severities
    assert whole + sheet <= first + len(made) < whole + sheet + lost, "finished pieces were computed again"


def test_a_finished_copy_is_not_made_again(tmp_path, monkeypatch):
    copy(tmp_path, "parquet")
    before = contents(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
    copy(tmp_path, "parquet")
    assert contents(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")} == times
    assert not (tmp_path / ".pieces").exists()
