"""The example scripts run as they stand, from a folder that is not the project's."""

from pathlib import Path

import pytest

from processes import script as run

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_something(script, tmp_path):
    done = run(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
