"""Every planted fault of the table is noticed by the tests it names (`make mutants`)."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.slow
def test_every_planted_fault_is_noticed():
    done = subprocess.run([sys.executable, RUN], capture_output=True, text=True)
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if not line.startswith("caught"))
