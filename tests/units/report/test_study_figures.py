"""Figures of a study: what an earlier call wrote is replaced, what others put there stays."""

from hardtack.report.study_figures import WRITTEN, _remove_old


def test_only_figures_of_an_earlier_call_are_removed(tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("old.png", "old.pdf", "kept.png", "mine.png", "notes.txt"):
        (folder / name).write_text("x")
    (tmp_path / "outside.png").write_text("x")
    (folder / WRITTEN).write_text("old.png\nold.pdf\nkept.png\n../outside.png\nnotes.txt\n")
    _remove_old(folder, {"kept.png", "new.png"})
    assert {path.name for path in folder.iterdir()} == {"kept.png", "mine.png", "notes.txt", WRITTEN}
    assert (tmp_path / "outside.png").exists()
    assert (folder / WRITTEN).read_text() == "kept.png\nnew.png\n"


def test_a_folder_without_figures_is_not_made(tmp_path):
    _remove_old(tmp_path / "figures", set())
    assert not (tmp_path / "figures").exists()
