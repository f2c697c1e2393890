"""A corruption of the user's is one file: named with `--import`, it is evaluated, written to disk and reported."""

import pytest

from hardtack.base.registry import corruptions
from hardtack.commands.cli import main

SOURCE = """
from hardtack.base import randomness
from hardtack.base.registry import corruptions


@corruptions.register("grey_test", help="colours fade")
def grey(x, keys, severity, constants):
    return x + (x.mean(dim=1, keepdim=True) - x) * severity / 5 * randomness.uniform(keys, (1, 1, 1))
"""


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "my_corruption.py"
    file.write_text(SOURCE)
    yield str(file)
    corruptions._entries.pop("grey_test", None)


def test_it_is_a_type_of_the_corruption_suite_and_of_the_report(plugin, tmp_path, capsys):
    output = tmp_path / "run"
    words = ["model=vit_digits", "data=digits", "suite=corruptions", "types=grey_test,fog", "severities=1,5", "n=8"]
    assert main(["evaluate", *words, f"output={output}", "--import", plugin]) == 0
    assert "grey_test" in capsys.readouterr().out
    assert main(["report", str(output), "--import", plugin]) == 0
    page = next(tmp_path.rglob("report.html")).read_text(encoding="utf-8")
    assert "grey_test" in page or "grey test" in page


def test_corrupt_writes_it_and_its_files_are_read_back(plugin, tmp_path, capsys):
    import hardtack.data.official  # noqa: F401  (read before the user's file: its type is known all the same)

    folder = tmp_path / "corrupted"
    assert main(["corrupt", "digits", str(folder), "types=grey_test", "n=8", "--import", plugin]) == 0
    words = ["model=vit_digits", f"data=corrupted:{folder}/grey_test/3", "suite=clean", f"output={tmp_path / 'run'}"]
    assert main(["evaluate", *words, "--import", plugin]) == 0
    assert "clean accuracy" in capsys.readouterr().out


def test_without_its_file_there_is_no_such_type(tmp_path, capsys):
    words = ["model=vit_digits", "data=digits", "suite=corruptions", "types=grey_test", f"output={tmp_path / 'run'}"]
    assert main(["evaluate", *words]) == 2
    assert "there is no corruption 'grey_test'" in capsys.readouterr().err
