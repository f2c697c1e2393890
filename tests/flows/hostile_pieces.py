"""Files of a stranger in the hidden folders of a run: pickles that execute, and JSON that was changed."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from processes import hardtack

NET = """
import torch

def build(num_classes):
    torch.manual_seed(1)
    first = [torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(192, 16)]
    return torch.nn.Sequential(*first, torch.nn.GELU(), torch.nn.Linear(16, 10))
"""
DEEP = "[" * 100_000
TAMPERED = (DEEP, "[]", "null", '{"spans": [[[0, 1000000000000]]], "store": 7}', '{"flags": 3, "seconds": "x"}', "{")


class Executes:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def hostile_bytes(marker: Path) -> list[bytes]:
    """A pickle, a file of torch's, and an npz file with an array of objects."""
    value = Executes(marker)
    saved, arrays = io.BytesIO(), io.BytesIO()
    torch.save(value, saved)
    np.savez(arrays, index=np.array([value], dtype=object), length=np.array(4))
    return [pickle.dumps(value), saved.getvalue(), arrays.getvalue()]


def plant(folder: Path, alone: Path, marker: Path) -> None:
    """Hostile pieces, notes and files of Slurm for the evaluation that `alone` holds the verdicts of, in `folder`."""
    genuine = next((alone / "verdicts").glob("*.parquet"))
    home = folder / "verdicts" / f".{genuine.stem}"
    slurm = home / "scratch" / "slurm" / "wave-0"
    slurm.mkdir(parents=True)
    pickled, saved, arrays = hostile_bytes(marker)
    (home / "00000000-00000004.parquet").write_bytes(pickled)
    (home / "00000000-00000004.npz").write_bytes(arrays)
    (home / "00000004-00000008.parquet").write_bytes(saved)
    (home / "00000004-00000008.part").write_bytes(arrays)
    pq.write_table(pq.read_table(genuine).slice(8, 4), home / "00000008-00000012.parquet")
    (home / "00000008-00000012.npz").write_bytes(arrays)  # beside a piece that is whole
    (home / "00000012-00000016.part").write_bytes(pickled)
    (home / "00000012.part").write_bytes(saved)
    (home / "scratch" / "job.pkl").write_bytes(pickled)
    for place in (slurm, slurm.parent):
        for name, content in (("tasks.json", pickled), ("job.pkl", pickled), ("jobs.json", DEEP.encode())):
            (place / name).write_bytes(content)
        for number, text in enumerate(TAMPERED[:4]):
            (place / f"{4 * number:08d}-{4 * number + 4:08d}.json").write_text(text)
        (place / "array-0.sh").write_text(f"#!/bin/sh\nmkdir {marker}\n")
        (place / "task-0.exit").write_text(f"$(mkdir {marker}) 2")
        (place / "task-0.log").write_text(json.dumps({"run": f"mkdir {marker}"}))


def check_hostile(folder: Path, *more: str) -> None:
    """An evaluation ends with the verdicts of a clean folder; a piece that is refused is named once and removed."""
    (folder / "net.py").write_text(NET)
    words = ["evaluate", "model=net.py:build", "data=digits", "n=16", "suite=pgd", "threat=linf:0.1", "attack.steps=4"]
    words += ["batch_size=4", "runtime.device=cpu", "audit=0"]
    alone = hardtack(*words, "output=alone", cwd=folder)
    assert alone.returncode == 0, alone.stderr
    marker = folder / "ran"
    plant(folder / "run", folder / "alone", marker)
    first = hardtack(*words, "output=run", *more, cwd=folder)
    assert not marker.exists() and first.returncode == 2, first.stderr
    last = first.stderr.strip().splitlines()[-1]
    assert "00000008-00000012.npz is not a readable npz file of plain arrays" in last and "Repeat the command" in last
    again = hardtack(*words, "output=run", *more, cwd=folder)
    assert not marker.exists() and again.returncode == 0, again.stderr
    assert _verdicts(folder / "run") == _verdicts(folder / "alone")


def _verdicts(folder: Path) -> str:
    return repr(pq.read_table(next((folder / "verdicts").glob("*.parquet"))).to_pydict())
