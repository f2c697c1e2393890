"""A release in an empty environment: pip installs the wheel with what it needs, and the demo runs (`make package`)."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment_runs_the_demo(tmp_path):
    """Of `dist/`, if `make package` just built it. Downloads torch unless pip has it; about five minutes."""
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    assert wheels, "there is no wheel: make package builds one"
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = os.pathsep.join((str(place / "bin"), "/usr/bin", "/bin"))
    work = tmp_path / "work"
    work.mkdir()

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    python = str(place / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", str(wheels[-1]))
    assert str(place) in run(python, "-c", "import hardtack; print(hardtack.__file__)")
    assert shutil.which("hardtack", path=environment["PATH"]) == str(place / "bin" / "hardtack")
    run("hardtack", "doctor")
    assert "runs/demo/report.html" in run("hardtack", "demo")
    assert (work / "runs/demo/report.html").stat().st_size > 100_000
