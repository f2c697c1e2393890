"""A verb of the user's own is one file: named with `--import`, it shows in the help and runs."""

import pytest

from hardtack.base.registry import verbs
from hardtack.commands.cli import main

SOURCE = '''"""A verb that counts images."""

from typing import Annotated

import typer

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs


@verbs.register("count")
def count(data: Annotated[str, typer.Argument(help="a data set")], split: str = "test") -> None:
    """Count the images of a data set."""
    from hardtack.data import load_data

    if data == "nothing":
        raise UserError("name a data set")
    print(f"{data}: {len(load_data(data, split))} images")
'''


@pytest.fixture
def plugin(tmp_path):
    """The user's file; its verb is taken out of the registry afterwards."""
    file = tmp_path / "my_verb.py"
    file.write_text(SOURCE)
    yield str(file)
    verbs._entries.pop("count", None)


def test_the_verb_shows_in_the_help(plugin, capsys):
    assert main(["--import", plugin, "--help"]) == 0
    text = capsys.readouterr().out
    assert "count" in text and "Count the images of a data set." in text and "evaluate" in text


def test_the_verb_runs_with_its_arguments(plugin, capsys):
    assert main(["--import", plugin, "count", "digits", "--split", "validation"]) == 0
    assert capsys.readouterr().out.startswith("digits: ")


def test_its_mistakes_are_one_line_and_exit_code_two(plugin, capsys):
    assert main(["--import", plugin, "count", "nothing"]) == 2
    assert capsys.readouterr().err == "hardtack: name a data set\n"


def test_without_its_file_there_is_no_such_verb(capsys):
    assert main(["count", "digits"]) == 2
    assert "there is no verb 'count'" in capsys.readouterr().err


def test_a_built_in_verb_cannot_be_replaced(plugin, tmp_path, capsys):
    other = tmp_path / "other.py"
    other.write_text(SOURCE.replace('"count"', '"train"'))
    assert main(["--import", str(other), "--help"]) == 2
    assert "the verb 'train' is registered twice" in capsys.readouterr().err
