"""The example scripts run as they stand, from a folder that is not the project's."""

import importlib.util
from pathlib import Path

import pytest

from processes import script as run

# packages that are not in the extra `dev`, because they demand old versions of others
NEEDED = {"in_torchattacks": "torchattacks", "in_art": "art", "in_foolbox": "foolbox"}
ELSEWHERE = ("your_loop", "your_lightning_module", "your_accelerate_loop")  # test_own_loop.py runs these
FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
EXAMPLES = [file for file in FILES if file.stem not in ELSEWHERE]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_something(script, tmp_path):
    needed = NEEDED.get(script.stem)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    done = run(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
