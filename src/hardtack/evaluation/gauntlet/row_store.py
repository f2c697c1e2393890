"""Rows and truths of the gauntlet on disk, each written as soon as it is known.

    truths/MECHANISM-ID.npz              per image: robust or not, and the worst image known
    rows/MECHANISM-EVALUATOR-ID.json     what the evaluator said

The id of a truth is a digest of the core's weights, the images, the threat, the seed, the device, the version of
hardtack and the source of the mechanism. The id of a row has the source of the evaluator in it as well; for hardtack's
own tiers that is the source of attacks, threats and evaluation. Rows of an older source are thus measured again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

import torch

import hardtack
from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.base.registry import Entry, mechanisms
from hardtack.engine import tensor_digest
from hardtack.evaluation.gauntlet.mechanism import Core
from hardtack.evaluation.gauntlet.truth import Truth
from hardtack.evaluation.gauntlet.verdict import Row
from hardtack.models.from_file import state_sha256

HERE = Path(__file__).parent
OWN_TIERS = "hardtack_tiers"  # the family of the evaluators that depend on all of our attacks
OWN_SOURCE = ("attacks", "threats", "evaluation")
TRUTH_SOURCE = ("mechanism.py", "gradients.py", "fitted.py", "truth.py")


class RowStore:
    """Rows and truths of one core and seed below `folder`; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, core: Core, seed: int) -> None:
        self.folder, self.core = folder, core
        self._setting = _setting_digest(core, seed) if folder is not None else ""

    def read_truth(self, mechanism: str) -> Truth | None:
        """The truth as it was known last."""
        path = self._truth_path(mechanism)
        if path is None or not path.is_file():
            return None
        arrays = {name: torch.from_numpy(value).to(self.core.x) for name, value in read_arrays(path).items()}
        return Truth(arrays["clean"], arrays["robust"], arrays["x_adv"])

    def write_truth(self, mechanism: str, truth: Truth) -> None:
        """Replace the truth on disk."""
        path = self._truth_path(mechanism)
        if path is not None:
            arrays = {"clean": truth.clean, "robust": truth.robust, "x_adv": truth.x_adv}
            write_arrays(path, {name: value.cpu().numpy() for name, value in arrays.items()})

    def read_row(self, mechanism: str, evaluator: Entry) -> Row | None:
        """The row, if it was measured with the source as it is now."""
        path = self._row_path(mechanism, evaluator)
        if path is None or not path.is_file():
            return None
        return Row.read(read_json(path))

    def write_row(self, row: Row, evaluator: Entry) -> None:
        """Write one row whole."""
        path = self._row_path(row.mechanism, evaluator)
        if path is not None:
            write_text(path, json.dumps(row.plain(), indent=1) + "\n")

    def _truth_path(self, mechanism: str) -> Path | None:
        if self.folder is None:
            return None
        id = _joined(self._setting, _file_digest(mechanisms.get(mechanism).make))
        return self.folder / "truths" / f"{mechanism}-{id}.npz"

    def _row_path(self, mechanism: str, evaluator: Entry) -> Path | None:
        if self.folder is None:
            return None
        source = _own_source_digest() if evaluator.family == OWN_TIERS else _file_digest(evaluator.make)
        id = _joined(self._setting, _file_digest(mechanisms.get(mechanism).make), source)
        return self.folder / "rows" / f"{mechanism}-{evaluator.name}-{id}.json"


def _joined(*words: str) -> str:
    return hashlib.sha256("|".join(words).encode()).hexdigest()[:12]


def _setting_digest(core: Core, seed: int) -> str:
    """Of what all rows of a gauntlet have in common."""
    robust = "" if core.robust is None else state_sha256(core.robust)
    tensors = {"x": core.x, "y": core.y, "train_x": core.train_x, "train_y": core.train_y}
    words = [hardtack.__version__, core.name, state_sha256(core.model), robust, tensor_digest(tensors)]
    source = [(HERE / name).read_text(encoding="utf-8") for name in TRUTH_SOURCE]
    return _joined(*words, str(core.threat), str(seed), core.x.device.type, *source)


@functools.cache
def _own_source_digest() -> str:
    """Of the source of everything that decides what our tiers say; the other files of the gauntlet do not."""
    files = [path for room in OWN_SOURCE for path in sorted((HERE.parents[1] / room).rglob("*.py"))]
    kept = [path for path in files if HERE not in path.parents or path.parent.name == "evaluators"]
    return _joined(*(path.read_text(encoding="utf-8") for path in kept))


def _file_digest(function: Any) -> str:
    """Of the source file that a mechanism or evaluator stands in; empty for one that was typed in."""
    try:
        return _joined(Path(inspect.getfile(function)).read_text(encoding="utf-8"))
    except (OSError, TypeError):
        return ""
