"""Losses and attacks in loops that are not ours: the examples, as a reader would run them."""

import re
from pathlib import Path

import pytest

from processes import script

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, folder):
    done = script(EXAMPLES / name, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
    return done.stdout


def test_a_plain_loop(tmp_path):
    text = run("your_loop.py", tmp_path)
    losses = [float(value) for value in re.findall(r"loss (\S+)", text)]
    assert len(losses) == 4 and losses[-1] < losses[0]
    mild, strong = map(int, re.search(r"linf:0\.02: (\d+), at linf:0\.05: (\d+)", text).groups())
    assert 0 < mild < strong
    assert text == run("your_loop.py", tmp_path), "torch.manual_seed repeats the whole loop"


@pytest.mark.parametrize(
    "name, package", [("your_lightning_module.py", "lightning"), ("your_accelerate_loop.py", "accelerate")]
)
def test_a_loop_of_another_library(name, package, tmp_path):
    pytest.importorskip(package)
    text = run(name, tmp_path)
    clean, robust = (float(value) for value in re.findall(r"accuracy\D*?(?:linf:\S+)?\s+([\d.]+)%", text)[:2])
    assert clean > 90 and 70 < robust <= clean
