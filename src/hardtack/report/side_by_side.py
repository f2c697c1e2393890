"""Two runs beside each other, and the best beside the last checkpoint of one."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.report import wording
from hardtack.report.history import epochs_of, is_number, lines_of, said_warnings
from hardtack.results import Result, Run, comparable

THEIR_OWN = ("name", "output")  # settings that any two runs differ in
COMPARED = ("clean_accuracy", "robust_accuracy", "worst_case_accuracy", "mean_corrupted_accuracy")


def side_by_side(runs: Sequence[Run], settings: Sequence[Mapping[str, str]]) -> dict[str, Any] | None:
    """What the page compares of any two runs that were trained; None where there are no two.

    `settings` are every run's, by name. Those that are the same everywhere are left out here, those that are the same
    for the chosen two on the page.
    """
    trained = [number for number, run in enumerate(runs) if run.metrics]
    if len(trained) < 2:
        return None
    facts = [_facts(runs[number]) for number in trained]
    run_settings = [settings[number] for number in trained]
    named = dict.fromkeys(key for entry in run_settings for key in entry if key not in THEIR_OWN)
    keys = [key for key in named if len({entry.get(key) for entry in run_settings}) > 1]
    return {
        "runs": [{"run": number, "name": runs[number].label} for number in trained],
        "facts": [{"key": key, "values": [entry[key] for entry in facts]} for key in facts[0]],
        "settings": [{"key": key, "values": [entry.get(key) or "—" for entry in run_settings]} for key in keys],
    }


def _facts(run: Run) -> dict[str, str]:
    """What became of the training: its best and last epoch, its loss, its speed, its warnings."""
    epochs, lines = epochs_of(run), lines_of(run, "train")
    best = max(epochs, key=lambda entry: entry.score, default=None)
    last = epochs[-1] if epochs else None
    facts = {"Best epoch": f"{best.epoch:g}" if best else "—"}
    for name, entry in (("best", best), ("last", last)):
        facts[f"Clean accuracy, {name} epoch"] = wording.number(entry.clean) if entry else "—"
        facts[f"Robust accuracy, {name} epoch"] = wording.number(entry.robust) if entry else "—"
    reached = [float(line["epoch"]) for line in run.metrics if is_number(line.get("epoch"))]
    losses = [float(line["loss"]) for line in lines if is_number(line.get("loss"))]
    speeds = [float(line["images_per_s"]) for line in lines if is_number(line.get("images_per_s"))]
    facts["Epochs trained"] = f"{max(reached):.4g}" if reached else "—"
    facts["Training loss at the end"] = f"{losses[-1]:.4g}" if losses else "—"
    facts["Images per second, median"] = f"{statistics.median(speeds):,.0f}" if speeds else "—"
    warned = [line["warning"].replace("_", " ") for line, _ in said_warnings(run)]
    facts["Warnings"] = wording.listed(warned) if warned else "none"
    return facts


def best_and_last(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every number that was measured of both checkpoints of a run in the same way, and their difference."""
    rows = []
    for number, run in enumerate(runs):
        run_settings: dict[Any, dict[str, Result]] = {}
        for result in sorted(run.results, key=lambda result: result.created):
            if result.checkpoint in ("best", "last") and result.metric in COMPARED:
                run_settings.setdefault(comparable(result), {})[result.checkpoint] = result
        for pair in run_settings.values():
            if len(pair) == 2:
                rows.append(_row(number, run.label, pair["best"], pair["last"]))
    return rows


def _row(number: int, name: str, best: Result, last: Result) -> dict[str, Any]:
    attack = wording.attack_name(best.attack, "") if best.threat else ""
    about = [wording.metric_name(best.metric), attack, wording.reach_of(best), wording.images(best)]
    return {
        "run": number,
        "name": name,
        "what": ", ".join(part for part in about if part),
        "best": wording.with_interval(best),
        "last": wording.with_interval(last),
        "difference": f"{100 * (last.value - best.value):+.1f}",
        "same": best.weights_sha256 is not None and best.weights_sha256 == last.weights_sha256,
    }
