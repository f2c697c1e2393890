"""Analyses and corrupted copies of one process and of an executor, compared to the bit."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np

from processes import hardtack

NET = """
import torch

def build(num_classes):
    torch.manual_seed(1)
    first = [torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(192, 16)]
    return torch.nn.Sequential(*first, torch.nn.GELU(), torch.nn.Linear(16, 10))
"""


def check_equal(folder: Path, *more: str) -> None:
    """`hardtack analyze` and `hardtack corrupt` here and with the words `more`."""
    analysis, copy = results(folder, *more)
    expected, expected_copy = results_here()
    assert analysis.keys() == expected.keys()
    for key, values in expected.items():
        assert np.array_equal(values, analysis[key], equal_nan=values.dtype.kind == "f"), key
    assert np.array_equal(copy, expected_copy)


@functools.cache
def results_here() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Of one process, for every executor that is compared with it."""
    with tempfile.TemporaryDirectory() as folder:
        return results(Path(folder))


def results(folder: Path, *more: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The arrays of the analysis and the images of the copy."""
    (folder / "net.py").write_text(NET)
    analysis = ["analyze", "jacobian", "jacobian.of=network", "model=net.py:build", "data=digits", "n=6"]
    copy = ["corrupt", "digits", "run/copy", "types=[fog]", "n=40", "runtime.device=cpu"]
    for command in ([*analysis, "batch_size=2", "runtime.device=cpu", "output=run"], copy):
        done = hardtack(*command, *more, cwd=folder)
        assert done.returncode == 0, done.stderr
    arrays = dict(np.load(next((folder / "run" / "analysis").glob("*.npz"))))
    return arrays, np.load(folder / "run" / "copy" / "fog.npy")
