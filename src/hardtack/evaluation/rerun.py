"""A sample of the images measured again: do the stored verdicts come out (`hardtack verify RUN sample=20`)?

This is the only check of images that count as robust: no stored file can show that an attack was really made and
failed. The sample is drawn anew at every call, so that a forger cannot know it. On a CPU an image gets the same verdict
as before, because its random numbers are its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suite import evaluate
from hardtack.evaluation.suites import make_suite
from hardtack.evaluation.target import Target

Columns = Mapping[str, np.ndarray]
ALL = "all"
_TOLERANCE = 1e-3  # of probabilities and shares that are measured again


def read_sample(value: Any) -> int | None:
    """The number of images of `sample=K`; `sample=all` is as many as there are."""
    if value is None:
        return None
    if value == ALL:
        return 2**62
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"sample takes a number of images, or all, found sample={value}")
    return value


def measure_again(
    target: Target, config: EvaluationConfig, runtime: Runtime, columns: Columns, sample: int
) -> tuple[str, list[str], set[int]]:
    """A line about what was measured again, a line for each column that differs, and the images confirmed broken.

    Images that count as robust come first: broken ones have stored images that were checked.
    """
    place = {int(index): row for row, index in enumerate(target.data.index)}
    rows = np.array([row for row in range(len(columns["index"])) if int(columns["index"][row]) in place], dtype=int)
    rows = np.random.default_rng().permutation(rows)
    if "robust" in columns:
        rows = np.concatenate([rows[columns["robust"][rows]], rows[~columns["robust"][rows]]])
    of_batches = _of_batches(config, runtime.seed)
    rows = np.sort(rows if of_batches else rows[:sample])
    if not len(rows):
        return "no image could be measured again", [], set()
    data = target.data.subset([place[int(columns["index"][row])] for row in rows])
    # an audit looks at a sample of all images: with fewer images it would be another one
    audit = 0 if config.keep else config.audit
    again = evaluate(
        target.model, data,
        config=dataclasses.replace(
            config, keep=False, examples=0, chunk_size=config.chunk_size if of_batches else None, audit=audit
        ),
        runtime=runtime, quiet=True,
    )  # fmt: skip
    wrong = _differences(again.verdicts, columns, rows, kept=config.keep)
    broken = again.verdicts["clean_correct"] & ~again.verdicts.get("robust", again.verdicts["clean_correct"])
    numbers = columns["index"][rows].tolist()
    line = f"measured again: {len(rows)} images"
    if "robust" in columns:
        line += f", {int(columns['robust'][rows].sum())} of which count as robust"
    line += f" (all, because {of_batches} draws random numbers for whole batches)" if of_batches else ""
    return line, wrong, {number for number, down in zip(numbers, broken, strict=True) if down}


def _of_batches(config: EvaluationConfig, seed: int) -> str:
    """The attacks whose result for an image depends on the others of its batch, by name."""
    stages = [stage for trial in make_suite(config).threat_stages(config, seed) for stage in trial.stages]
    return ", ".join(dict.fromkeys(stage.name for stage in stages if stage.attack.whole_batches))


def _differences(again: Columns, columns: Columns, rows: np.ndarray, *, kept: bool) -> list[str]:
    """A line for each column that differs. `kept`: broken images have stored ones that were checked; an image that only
    the escalation of an audit broke need not be broken again here."""
    wrong = []
    for name, values in again.items():
        if name not in columns or not _decides(name):
            continue
        stored, found = columns[name][rows], values
        if found.dtype.kind == "f":
            odd = np.flatnonzero(~np.isclose(stored.astype(float), found.astype(float), atol=_TOLERANCE))
        elif name.startswith("robust") and kept:
            odd = np.flatnonzero(stored & ~found)
        else:
            odd = np.flatnonzero(stored != found)
        if len(odd):
            first = odd[0]
            wrong.append(
                f"{name}: {len(odd)} of {len(rows)} images differ when they are measured again, the first at index "
                f"{int(columns['index'][rows[first]])}: stored {stored[first]}, measured {found[first]}"
            )
    return wrong


def _decides(name: str) -> bool:
    """Whether results are made from the column. Which attack breaks an image first may depend on rounding."""
    return name.startswith(("robust", "clean_")) or "@" in name
