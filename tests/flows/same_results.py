"""Analyses and corrupted copies of one process and of an executor, compared to the bit."""

from __future__ import annotations

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
    (folder / "net.py").write_text(NET)
    for name, words in (("alone", ()), ("shared", more)):
        analysis = ["analyze", "jacobian", "jacobian.of=network", "model=net.py:build", "data=digits", "n=6"]
        copy = ["corrupt", "digits", f"{name}/copy", "types=[fog]", "n=40", "runtime.device=cpu"]
        for command in ([*analysis, "batch_size=2", "runtime.device=cpu", f"output={name}"], copy):
            done = hardtack(*command, *words, cwd=folder)
            assert done.returncode == 0, done.stderr
    arrays = [dict(np.load(next((folder / name / "analysis").glob("*.npz")))) for name in ("alone", "shared")]
    assert arrays[0].keys() == arrays[1].keys()
    for key, values in arrays[0].items():
        assert np.array_equal(values, arrays[1][key], equal_nan=values.dtype.kind == "f"), key
    copies = [np.load(folder / name / "copy" / "fog.npy") for name in ("alone", "shared")]
    assert np.array_equal(*copies)
