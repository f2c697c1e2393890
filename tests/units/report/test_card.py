"""The model card and the paper figures tell the same numbers as the page."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
from run_folders import HOSTILE_NAME, make_run, make_runs

from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.report import write_card, write_figures
from hardtack.report.figures import write_examples_figure
from hardtack.results import read_run


def test_the_card_has_numbers_protocol_warnings_and_commands(tmp_path):
    folder = make_run(tmp_path / "trades", seed=2)
    path = write_card(folder)
    text = path.read_text()
    assert path == folder / "card.md"
    assert "| Robust accuracy ℓ∞ ≤ 8/255 | 72.8% (68.0–77.1%) | 93.3% (90.3–95.5%) | best | pgd steps=20" in text
    assert "- **note.** Robust accuracy was measured with PGD alone." in text
    assert "pgd-20, one restart, cross-entropy" in text
    assert "**yellow: few-images.**" in text
    assert "hardtack evaluate trades suite=pgd checkpoint=best threat=linf:8/255 attack.steps=20" in text
    assert "- `objective.beta`: 6.0" in text
    assert "| ε | 0 | 1/255 |" in text
    assert str(tmp_path) not in text


def test_a_name_cannot_become_markup_in_the_card(tmp_path):
    text = write_card(make_run(tmp_path / HOSTILE_NAME)).read_text()
    assert "<script>" not in text.split("```")[0]


def test_a_bare_run_has_a_card(tmp_path):
    (tmp_path / "config.yaml").write_text("name: x\n")
    text = write_card(tmp_path, tmp_path / "out.md").read_text()
    assert "Not evaluated yet." in text and "Nothing has been checked yet." in text


def test_figures_for_papers(tmp_path):
    make_runs(tmp_path / "runs")
    written = write_figures(tmp_path / "runs", tmp_path / "figures")
    names = [path.name for path in written]
    assert names[:3] == ["curve.pdf", "curve.svg", "curve.png"] and "examples-trades-pgd-8.png" in names
    starts = {".pdf": b"%PDF", ".svg": b"<?xm", ".png": b"\x89PNG"}
    assert all(path.read_bytes()[:4] == starts[path.suffix] for path in written)


def test_a_figure_drawn_again_is_the_same_file(tmp_path):
    run = make_run(tmp_path / "run", examples=False, metrics=False)
    first, again = (write_figures(run, tmp_path / name, formats=["pdf", "svg"]) for name in ("first", "again"))
    assert first and [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_one_gallery_as_a_picture(tmp_path):
    (gallery,) = read_run(make_run(tmp_path / "$trades_")).galleries
    assert write_examples_figure(gallery, tmp_path / "g.png").read_bytes()[:4] == b"\x89PNG"
    empty = type(gallery)(**{**vars(gallery), "x": gallery.x[:0]})
    with pytest.raises(UserError):
        write_examples_figure(empty, tmp_path / "h.png")


def test_runs_that_cannot_be_written_get_a_page_elsewhere_but_no_cards(tmp_path, monkeypatch, capsys):
    folder = make_run(tmp_path / "runs" / "theirs", sweep=False, examples=False, metrics=False)
    make, allowed = tempfile.mkstemp, os.access

    def make_outside(*, dir, **options):
        if Path(dir).is_relative_to(tmp_path / "runs"):
            raise PermissionError(errno.EACCES, "Permission denied", f"{dir}/.new.part")
        return make(dir=dir, **options)

    monkeypatch.setattr("tempfile.mkstemp", make_outside)
    shut = [(folder, os.W_OK), (folder.parent, os.W_OK)]
    monkeypatch.setattr("os.access", lambda path, mode: (path, mode) not in shut and allowed(path, mode))
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html")]) == 0
    assert f"no card.md was written in {folder}" in capsys.readouterr().err and (tmp_path / "page.html").is_file()
    assert main(["report", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert f"the folder {tmp_path / 'runs'} cannot be written (Permission denied); name another one: --output" in said
    assert said.count("\n") == 1 and ".part" not in said
