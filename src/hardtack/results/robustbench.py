"""RobustBench's model info, a JSON file for each model and leaderboard, written from results measured with hardtack.

    model_info/cifar10/Linf/NAME.json      clean_acc, autoattack_acc at eps
    model_info/cifar10/corruptions/NAME.json      clean_acc, corruptions_acc (imagenet: corruptions_mce too)

Numbers are percentages, as text. Only the folder says which norm a file is about.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path, write_text
from hardtack.results.record import Result
from hardtack.results.runs import Run
from hardtack.results.threat_text import parse_threat

IMAGES = {"cifar10": 10_000, "cifar100": 10_000, "imagenet": 5_000}  # images of its leaderboards
BOARDS = {"linf": "Linf", "l2": "L2"}
CORRUPTIONS = "corruptions"
TIERS = ("exact", "verified")  # their verdicts agree with the official implementation


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Information for RobustBench from the user; `threat` and `checkpoint` select one of several results.

    name                    of robustbench: the paper's title
    authors                 of robustbench: the paper's authors
    link                    of robustbench: address of the paper
    venue                   of robustbench: where and when it appeared
    architecture            of robustbench: the network as RobustBench's tables name it; empty: hardtack's name
    dataset                 of robustbench: the data set as RobustBench names it; empty: from the result
    reported                of robustbench: robust accuracy that the paper claims, in per cent
    footnote                of robustbench: a remark under the table
    additional_data         of robustbench: whether training used further data
    number_forward_passes   of robustbench: passes of the model for one prediction
    threat                  of robustbench: the threat of one of several results; null: the only one
    checkpoint              of robustbench: the checkpoint of one of several results; null: the only one
    """

    name: str = ""  # the paper's title
    authors: str = ""
    link: str = ""
    venue: str = ""
    architecture: str = ""
    dataset: str = ""
    reported: str = ""  # the robust accuracy that the paper claims, in per cent
    footnote: str = ""
    additional_data: bool = False
    number_forward_passes: int = 1
    threat: str | None = None
    checkpoint: str | None = None


def write_model_infos(runs: Sequence[Run], paper: Paper, output: str | None = None) -> str:
    """Write model info to a file (`output` ends in .json) or a folder; without `output` return the one text."""
    infos = model_infos(runs, paper)
    if output is not None and not output.endswith(".json"):
        folder = local_path(output)
        return "\n".join(f"exported: {write_text(folder / path, text)}" for path, text in infos.items())
    if len(infos) > 1:
        listed = ", ".join(map(str, infos))
        raise UserError(
            f"there are {len(infos)} files to write ({listed}): give output=FOLDER, or name one run and a threat=…"
        )
    text = next(iter(infos.values()))
    return text.rstrip() if output is None else f"exported: {write_text(local_path(output), text)}"


def model_infos(runs: Sequence[Run], paper: Paper) -> dict[Path, str]:
    """`cifar10/Linf/RUN.json` and its text for every run that has a number RobustBench would list."""
    infos: dict[Path, str] = {}
    without = []
    for run in runs:
        entries = _entries(run, paper)
        without += [] if entries else [run.label]
        for board, results in entries.items():
            info = _info(run, board, results, paper)
            infos[Path(info["dataset"]) / board / f"{_file_name(run.label)}.json"] = (
                json.dumps(info, indent=2, ensure_ascii=False) + "\n"
            )
    if not infos:
        raise UserError(
            f"{', '.join(without)}: no result that RobustBench lists. Measure suite=autoattack version=standard with "
            f"tier=exact or verified at {paper.threat or 'an linf or l2 threat'}, or suite=corruptions with "
            f"files=FOLDER (the official files) and all 15 common types and 5 severities"
        )
    if without:
        warnings.warn(f"these runs have no result that RobustBench lists and were left out: {', '.join(without)}")
    return infos


def _entries(run: Run, paper: Paper) -> dict[str, list[Result]]:
    """The results for each leaderboard; the first is the robust accuracy, or the mean corrupted accuracy."""
    boards: dict[str, list[Result]] = {}
    for result in sorted(run.results, key=lambda result: (_tier(result) == "exact", result.created)):
        if paper.checkpoint not in (None, result.checkpoint):
            continue
        if _is_autoattack(result) and paper.threat in (None, result.threat):
            board = BOARDS[parse_threat(str(result.threat))[0]]
            others = {other.threat for other in boards.get(board, ())} - {result.threat}
            if others:
                raise UserError(
                    f"{run.label} has AutoAttack results at {others.pop()} and {result.threat}: select one by threat=…"
                )
            boards[board] = [result]
        elif _is_benchmark(result) and paper.threat in (None, CORRUPTIONS):
            kept = boards.get(CORRUPTIONS, [])
            same = [other for other in kept if other.evaluation == result.evaluation and other.metric != result.metric]
            boards[CORRUPTIONS] = sorted([*same, result], key=lambda other: other.metric, reverse=True)
    return boards


def _tier(result: Result) -> str:
    return str(result.attack_settings.get("tier", ""))


def _is_autoattack(result: Result) -> bool:
    settings = result.attack_settings
    return (
        result.suite == "autoattack"
        and result.metric == "robust_accuracy"
        and settings.get("version") == "standard"
        and _tier(result) in TIERS
        and str(result.threat).partition(":")[0] in BOARDS
    )


def _is_benchmark(result: Result) -> bool:
    """A mean over the whole benchmark, from its official files; regenerated images are similar but not the same."""
    how = result.attack_settings
    return (
        result.suite == CORRUPTIONS
        and result.metric in ("mean_corrupted_accuracy", "mean_corruption_error")
        and result.extra.get("source") == "official"
        and len(how.get("types", ())) == 15
        and how.get("severities") == [1, 2, 3, 4, 5]
    )


def _info(run: Run, board: str, results: list[Result], paper: Paper) -> dict[str, Any]:
    first = results[0]
    measured_with = [result for result in run.results if result.evaluation == first.evaluation]
    clean = [result for result in measured_with if result.metric == "clean_accuracy"]
    if board == CORRUPTIONS:
        fields = {"mean_corrupted_accuracy": "corruptions_acc", "mean_corruption_error": "corruptions_mce"}
        numbers = {fields[result.metric]: _per_cent(result.value) for result in results}
    else:
        numbers = {"autoattack_acc": _per_cent(first.value)}
    red = sorted({flag["code"] for flag in first.flags if flag["level"] == "red"})
    return {
        "link": paper.link,
        "name": paper.name,
        "authors": paper.authors,
        "additional_data": paper.additional_data,
        "number_forward_passes": paper.number_forward_passes,
        "dataset": _dataset(first, paper),
        "venue": paper.venue,
        "architecture": paper.architecture or first.model,
        "eps": None if board == CORRUPTIONS else str(first.threat).partition(":")[2],
        "clean_acc": _per_cent(clean[-1].value) if clean else "",
        "reported": paper.reported,
        **numbers,
        "footnote": " ".join(part for part in (paper.footnote, _how(first, red)) if part),
        "unreliable": bool(red),
    }


def _dataset(result: Result, paper: Paper) -> str:
    name = paper.dataset or re.split("[/:]", result.data)[0]
    if name not in IMAGES:
        hint = did_you_mean(name, IMAGES) or f", one of {', '.join(IMAGES)}"
        raise UserError(f"RobustBench has no data set '{name}'; name the one that {result.data} is: dataset=NAME{hint}")
    if result.n < IMAGES[name]:
        warnings.warn(f"{result.run}: measured on {result.n:,} images; RobustBench uses {IMAGES[name]:,}")
    return name


def _how(result: Result, red: list[str]) -> str:
    what = f"AutoAttack standard, tier {_tier(result)}" if result.suite == "autoattack" else "official corruption files"
    flags = f" Flagged: {', '.join(red)}." if red else ""
    version = result.versions.get("hardtack", "")
    return f"Measured by hardtack {version} ({what}) on {result.n:,} images of {result.data}.{flags}"


def _per_cent(value: float) -> str:
    return f"{100 * value:.2f}"


def _file_name(label: str) -> str:
    """The label where any file system can keep it; else a name made of it, different for different labels."""
    plain = re.sub(r"[^\w.-]+", "_", label)
    return plain if plain == label else f"{plain}-{json_digest(label)[:6]}"
