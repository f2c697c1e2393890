"""The help of a verb names its settings, by section."""

from pathlib import Path

from test_list_and_describe import said
from typer.main import get_command

from hardtack.base.registry import verbs
from hardtack.commands.cli import build_app
from hardtack.commands.settings_table import SECTION, Section, section_rows
from hardtack.commands.verb_help import setting_groups


def test_every_verb_names_its_settings_in_its_help(capsys):
    for verb in verbs.names():
        groups = dict(setting_groups(verb))
        rows = [row for row in section_rows(Section("verb", verb)) if not row.name.startswith("--")]
        named = {name for names in groups.values() for name in names.split(", ")}
        for row in rows:
            if "." not in row.name and row.name != "suite_settings":
                assert (f"{row.name}.…" in groups) if row.type == SECTION else (row.name in named), (
                    f"{verb}: {row.name}"
                )
        assert bool(groups) == bool(rows)


def test_the_help_of_evaluate(capsys):
    code, out, _ = said(capsys, "evaluate", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0 and "KEY=VALUE suite, threat, tier, version" in text and "device, precision, compile" in text
    assert "hardtack list settings evaluate explains them" in text and "hardtack list settings pgd" in text
    assert len(out.splitlines()) < 60
    assert "Settings" not in said(capsys, "doctor", "--help")[1]


def test_an_option_may_be_written_as_a_setting(tmp_path, monkeypatch):
    """As `output=` is with `evaluate` and `train`; a file of this very name stays a file."""
    monkeypatch.chdir(tmp_path)
    report = get_command(build_app(["report"])).commands["report"]
    for words in (
        ["runs", "output=my page.html"],
        ["output=my page.html", "runs"],
        ["runs", "--output", "my page.html"],
    ):
        given = report.make_context("report", list(words)).params
        assert given["output"] == Path("my page.html") and [str(run) for run in given["runs"]] == ["runs"], words
    (tmp_path / "output=x").mkdir()
    given = report.make_context("report", ["output=x"]).params
    assert given["output"] is None and [str(run) for run in given["runs"]] == ["output=x"]
