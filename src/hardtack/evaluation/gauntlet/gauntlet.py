"""The gauntlet: every evaluator on every defence mechanism, each beside the truth.

Rows are kept in the output folder as soon as they are known (row_store.py), so that a repeated call only computes what
is missing.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.progress import Meter
from hardtack.base.registry import Entry
from hardtack.base.registry import evaluators as evaluator_registry
from hardtack.base.registry import mechanisms as mechanism_registry
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, MissingRobustModel, build_defence
from hardtack.evaluation.gauntlet.row_store import RowStore
from hardtack.evaluation.gauntlet.truth import Truth, find_truth, lower_truth
from hardtack.evaluation.gauntlet.verdict import Row, counts, table_lines


@dataclasses.dataclass(frozen=True)
class GauntletResult:
    """All rows, each with the best truth known after the last one."""

    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()

    @property
    def silent(self) -> tuple[Row, ...]:
        """Rows that are silently wrong."""
        return tuple(row for row in self.rows if row.verdict == "SILENT")

    @property
    def false_alarms(self) -> tuple[Row, ...]:
        """Rows with a red flag on an honest model."""
        return tuple(row for row in self.rows if row.verdict == "FALSE ALARM")

    def __str__(self) -> str:
        notes = [f"left out: {note}" for note in self.left_out]
        return "\n".join([*table_lines(self.rows), *notes])

    def markdown(self) -> str:
        """The table for a page."""
        return "\n".join([*table_lines(self.rows, markdown=True), ""])


def run_gauntlet(
    core: Core,
    *,
    evaluators: Sequence[str] = ("fast", "verified"),
    mechanisms: Sequence[str] | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    runtime: Runtime | None = None,
    fresh: bool = False,
    quiet: bool = False,
) -> GauntletResult:
    """Run every evaluator on every mechanism (None: all of them) and compare the numbers with the truth.

    With `folder`, known rows are read from there and new ones written. `fresh` measures rows again; truths are kept.
    """
    runtime = runtime or Runtime(device=str(core.x.device), seed=seed)
    entries = [evaluator_registry.get(name) for name in evaluators]
    names = select_mechanisms(mechanisms)
    store = RowStore(None if folder is None else Path(folder), core, seed)
    rows: list[Row] = []
    left_out: list[str] = []
    with Meter("gauntlet", total=len(names) * len(entries), quiet=quiet, unit="rows") as meter:
        for name in names:
            try:
                defence = build_defence(name, core, seed=seed)
            except MissingRobustModel as error:
                left_out.append(f"{name}: {error}")
                continue
            truth = store.read_truth(name)
            if truth is None:
                meter.note(f"{name}: truth")
                truth = find_truth(core, defence, seed=seed)
                store.write_truth(name, truth)
            own = []
            for entry in entries:
                row = None if fresh else store.read_row(name, entry)
                if row is None:
                    meter.note(f"{name}: {entry.name}")
                    model = build_defence(name, core, seed=seed).model
                    claim = _claim(entry, model, core, seed=seed, runtime=runtime)
                    _learn(truth, claim, core, defence)
                    row = _row(name, entry.name, claim, truth, defence)
                    store.write_row(row, entry)
                    store.write_truth(name, truth)
                own.append(row)
                meter.advance(1, f"{name} {entry.name}")
            final = truth.robust_accuracy
            rows += [dataclasses.replace(row, truth=final) for row in own]
    result = GauntletResult(tuple(rows), tuple(left_out))
    if folder is not None:
        write_tables(Path(folder), result)
    return result


def select_mechanisms(wanted: Sequence[str] | None) -> list[str]:
    """Mechanisms by name or by family, in the order of their families; None: all."""
    listing = sorted(mechanism_registry.listing(), key=lambda entry: (entry.family, entry.name))
    if wanted is None:
        return [entry.name for entry in listing]
    families = {entry.family for entry in listing}
    for word in wanted:
        if word not in families:
            mechanism_registry.get(word)  # an unknown name is refused with the nearest one
    return [entry.name for entry in listing if entry.name in wanted or entry.family in wanted]


def write_tables(folder: Path, result: GauntletResult) -> None:
    """The table as gauntlet.json, gauntlet.txt and gauntlet.md."""
    summary = {"counts": counts(result.rows), "left_out": list(result.left_out)}
    content = {**summary, "rows": [row.plain() for row in result.rows]}
    write_text(folder / "gauntlet.json", json.dumps(content, indent=1) + "\n")
    write_text(folder / "gauntlet.txt", f"{result}\n")
    write_text(folder / "gauntlet.md", result.markdown())


def _claim(entry: Entry, model: torch.nn.Module, core: Core, *, seed: int, runtime: Runtime) -> Claim:
    """The claim of an evaluator. A model or an evaluator that fails gives no number, and the gauntlet goes on."""
    began = time.perf_counter()
    devices = [core.x.device] if core.x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        try:
            claim: Claim = entry.make(
                model, core.x.clone(), core.y.clone(), threat=core.threat, runtime=runtime,
                **entry.presets,
            )  # fmt: skip
            return claim
        except UserError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return Claim(failed=text, seconds=time.perf_counter() - began)


def _learn(truth: Truth, claim: Claim, core: Core, defence: Defence) -> None:
    """Lower the truth by what an evaluator found, as far as the deployed model confirms it."""
    if claim.x_adv is not None and not defence.random:
        lower_truth(truth, defence.target, core, claim.x_adv.to(core.x))


def _row(mechanism: str, evaluator: str, claim: Claim, truth: Truth, defence: Defence) -> Row:
    def codes(level: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(flag["code"] for flag in claim.flags if flag["level"] == level))

    return Row(
        mechanism=mechanism, family=mechanism_registry.get(mechanism).family, evaluator=evaluator,
        truth=truth.robust_accuracy, clean=truth.clean_accuracy, number=claim.robust_accuracy, red=codes("red"),
        yellow=codes("yellow"), refused=claim.refused, failed=claim.failed, seconds=round(claim.seconds, 3),
        honest=defence.honest, random=defence.random, n=len(truth.robust), parameters=dict(defence.parameters),
    )  # fmt: skip
