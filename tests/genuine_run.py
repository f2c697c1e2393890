"""A trained run with one attacked evaluation, for tests of `verify`, `bundle` and their forgers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hardtack as ht
from forgeries import verdicts_of
from hardtack.commands.cli import main
from hardtack.results import read_results
from tiny_runs import settings, write_data

WORDS = [
    "suite=attacks", "threat=linf:0.1", "chunk_size=5", "runtime.device=cpu",
    "attacks=[{name: apgd_ce, steps: 5}, {name: square, steps: 20}]",
]  # fmt: skip


def make_genuine_run(base: Path) -> tuple[Path, str]:
    """The folder and the evaluation: some images are misclassified, some broken, some robust."""
    file = write_data(base / "data.npz", test=16)
    arrays = dict(np.load(file))
    arrays["y_test"][:3] = 3 - arrays["y_test"][:3]  # labels that the model will not predict
    np.savez(file, **arrays)
    words = settings(base / "run", file, objective={"name": "standard"}, output=str(base / "run"))
    words["train"] |= {"epochs": 6, "ema": 0.0}
    ht.train(None, quiet=True, **words)
    assert main(["evaluate", str(base / "run"), *WORDS]) == 0
    (id,) = {result.evaluation for result in read_results(base / "run")}
    columns = verdicts_of(base / "run", id)
    broken = columns["clean_correct"] & ~columns["robust"]
    assert broken.sum() >= 2 and columns["robust"].sum() >= 2 and not columns["clean_correct"].all()
    return base / "run", id
