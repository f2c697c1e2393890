"""A protocol's table is the paper's: its columns in its order, and apart from what was measured otherwise."""

import re

import pytest
from surveyed import attacked, followed, measured

from hardtack.report import write_page
from hardtack.report.card import render_card
from hardtack.results import append_result, leaderboard, protocol_tables, read_run, read_runs


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("small", "large")]
    for folder in made:
        folder.mkdir()
    return made


def test_columns_keep_their_places_and_a_gap_is_a_dash(folders, tmp_path):
    followed(folders[0], {"PGD-l2": 0.3, "Clean": 0.9})
    followed(folders[1], {"AutoAttack": 0.5, "Clean": 0.8, "FGSM": 0.6})
    (table,) = protocol_tables(read_runs(tmp_path))
    assert table.protocol == "architectures/cifar 1"
    assert table.columns == ["Clean", "FGSM", "PGD-l2", "AutoAttack"]
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    body = text.split('<section id="protocols">')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = [
        re.findall(r'class="value">(.*?)<|class="num none" data-value="">(—)', row) for row in body.split("<tr>")[1:]
    ]
    assert [["".join(cell) for cell in row] for row in rows] == [
        ["80.0%", "60.0%", "—", "50.0%"], ["90.0%", "—", "30.0%", "—"]
    ]  # fmt: skip


def test_the_card_has_the_row_and_how_to_repeat_it(folders):
    followed(folders[0], {"PGD-l2": 0.3, "Clean": 0.9})
    text = render_card(read_run(folders[0]))
    assert "**Protocol architectures/cifar 1.** digits/test; 360 images." in text
    assert "| checkpoint | Clean | PGD-l2 |" in text and "| best | 90.0% (86.5–92.7%) | 30.0% (25.5–34.9%) |" in text
    assert "hardtack evaluate small protocol=architectures/cifar\n" in text


def test_protocols_are_no_rows_of_the_leaderboard(folders, tmp_path):
    followed(folders[0], {"Clean": 0.9, "FGSM": 0.3})
    assert leaderboard(read_runs(tmp_path)) == []
    attacked(folders[0], standing=100, wrong=20)
    assert all(table.suite == "autoattack" for table in leaderboard(read_runs(tmp_path)))


def test_other_versions_images_and_sources_are_other_tables(folders, tmp_path):
    followed(folders[0], {"Clean": 0.9})
    followed(folders[0], {"Clean": 0.9}, protocol="architectures/cifar 2")
    followed(folders[0], {"Clean": 0.9}, n=100)
    followed(folders[1], {"Clean": 0.9}, data="cifar10/test")
    followed(folders[1], {"Clean": 0.9, "FGSM": 0.2}, threat="linf:1/255")
    assert len(protocol_tables(read_runs(tmp_path))) == 5


def test_a_repeated_column_shows_its_newest_number(folders, tmp_path):
    followed(folders[0], {"Clean": 0.5}, created="2026-05-01")
    followed(folders[0], {"Clean": 0.9}, created="2026-04-01")
    (table,) = protocol_tables(read_runs(tmp_path))
    assert table.rows[0].cells["Clean"].value == 0.5


def test_reported_numbers_say_so_and_lead_nothing(folders, tmp_path):
    about = {"suite": "autoattack", "threat": "linf:8/255", "half": None, "extra": {"source": "reported"}}
    append_result(folders[1], measured(folders[1], "clean_accuracy", 0.99, **{**about, "threat": None}))
    append_result(folders[1], measured(folders[1], "robust_accuracy", 0.95, **about))
    attacked(folders[0], standing=100, wrong=20)
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert "reported, not measured here" in text.split('id="leaderboard"')[1].split("</section>")[0]
    assert "autoattack: reported, not measured here" in text.split('id="provenance"')[1]
    headlines = text.split('class="headlines"')[1].split("</header>")[0]
    assert "<b>small</b>" in headlines and "<b>large</b>" not in headlines
    tables = leaderboard(read_runs(tmp_path))
    assert not any({row.run for row in table.rows} == {"small", "large"} for table in tables)
