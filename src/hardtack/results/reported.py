"""Numbers that others report, read from RobustBench's model info and kept as run folders (`hardtack import`).

Such results are marked as reported, get tables of their own, and have neither an interval nor a number of images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hardtack.base.config import build
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.base.limits import read_json
from hardtack.results import REPORTED, Result, Run, append_results, parse_threat
from hardtack.results.agreement import check_results
from hardtack.results.robustbench import BOARDS, CORRUPTIONS, IMAGES

ATTACKS = {
    "autoattack_acc": "AutoAttack by RobustBench",
    "reported": "the authors' own evaluation",
    "external": "an evaluation by others",
}
SUMS = {
    "corruptions_acc": ("mean_corrupted_accuracy", "15 common types × 5 severities"),
    "corruptions_mce": ("mean_corruption_error", "15 common types × 5 severities"),
    "corruptions_acc_3d": ("mean_corrupted_accuracy", "3D common corruptions"),
    "corruptions_mce_3d": ("mean_corruption_error", "3D common corruptions"),
}


@dataclass(frozen=True, kw_only=True)
class ImportConfig:
    """The settings of `import`.

    output   the folder that receives a run folder for each model
    norm     the leaderboard of files that lie outside of RobustBench's folders, whose names state the norm; null: from
             the folder
    """

    output: str = "runs/reported"
    norm: Literal["linf", "l2", "corruptions"] | None = None


def import_reported(paths: Iterable[str | Path], words: Mapping[str, Any] | None = None) -> list[Path]:
    """Write a run folder for every model with its reported numbers; nothing is written if a file cannot be read."""
    config: ImportConfig = build(ImportConfig, words or {})
    read = [_reported(file, config.norm) for file in _info_files(paths)]
    folders = []
    for results in read:
        folders.append(local_path(config.output) / results[0].run)
        append_results(folders[-1], results)
    return list(dict.fromkeys(folders))


def reported_runs(paths: Iterable[str | Path], *, norm: str | None = None) -> list[Run]:
    """The models of RobustBench's model info as runs without a folder of their own: nothing is written."""
    runs: dict[str, Run] = {}
    for file in _info_files(paths):
        results = _reported(file, norm)
        label = results[0].run
        results = [*(runs[label].results if label in runs else ()), *results]
        runs[label] = Run(
            path=file.parent, label=label, results=results, agreements=check_results(file.parent, results)
        )
    return list(runs.values())


def _info_files(paths: Iterable[str | Path]) -> list[Path]:
    files: list[Path] = []
    for path in (local_path(path) for path in paths):
        if not path.exists():
            names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
            raise UserError(f"there is no file or folder {path}{did_you_mean(path.name, names)}")
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UserError(f"{path} holds no .json file; RobustBench's files are in its folder model_info")
        files += inside
    if not files:
        raise UserError("name files or folders of RobustBench's model info: hardtack import model_info/cifar10/Linf")
    return list(dict.fromkeys(files))


def _reported(file: Path, norm: str | None) -> list[Result]:
    info = _read(file)
    board = _board(file, norm)
    data = _listed_data(file, info)
    threat = None if board == CORRUPTIONS else f"{board}:{info.get('eps') or _missing(file, 'eps')}"
    if threat is not None:
        parse_threat(threat)
    flags: tuple[dict[str, str], ...] = ()
    if info.get("unreliable"):
        message = "RobustBench marks this evaluation as potentially unreliable: the true robust accuracy may be lower"
        flags = ({"level": "red", "code": "unreliable", "message": message},)
    facts = {key: info[key] for key in ("name", "authors", "venue", "link", "footnote") if info.get(key)}
    shared: dict[str, Any] = {
        "n": 0, "interval": "", "suite": REPORTED, "data": data, "evaluation": f"{REPORTED}-{data}-{board}",
        "run": file.stem, "model": str(info.get("architecture") or ""), "flags": flags,
        "checkpoint": f"{data} {board}",  # files with one name on two leaderboards belong to two models
        "extra": {"source": REPORTED, "paper": facts},
    }  # fmt: skip
    results = [Result(metric="clean_accuracy", value=_share(file, info, "clean_acc"), **shared)]
    for key, attack in ATTACKS.items() if board != CORRUPTIONS else ():
        if _is_number(info.get(key)):
            value = _share(file, info, key)
            results.append(Result(metric="robust_accuracy", value=value, threat=threat, attack=attack, **shared))
    for key, (metric, attack) in SUMS.items() if board == CORRUPTIONS else ():
        if _is_number(info.get(key)):
            results.append(Result(metric=metric, value=_share(file, info, key), attack=attack, **shared))
    if len(results) == 1:
        raise UserError(f"{file} reports only clean accuracy; check that it belongs to the {board} leaderboard")
    return results


def _read(file: Path) -> dict[str, Any]:
    info = read_json(file)
    if not isinstance(info, dict) or "clean_acc" not in info:
        raise UserError(f"{file} is not RobustBench's model info: it has no clean_acc")
    return info


def _board(file: Path, norm: str | None) -> str:
    board = norm or file.resolve().parent.name.lower()
    if board not in (*BOARDS, CORRUPTIONS):
        raise UserError(f"the folder of {file} does not name a leaderboard: give norm=linf, l2 or corruptions")
    return board


def _listed_data(file: Path, info: dict[str, Any]) -> str:
    """The data set, from the folder first: some files were copied from another leaderboard and still name that one."""
    folder = file.resolve().parent.parent.name
    return folder if folder in IMAGES else str(info.get("dataset") or _missing(file, "dataset"))


def _missing(file: Path, key: str) -> str:
    raise UserError(f"{file} has no {key}")


def _is_number(value: Any) -> bool:
    try:
        return value is not None and float(value) >= 0
    except (TypeError, ValueError):  # "", "null"
        return False


def _share(file: Path, info: dict[str, Any], key: str) -> float:
    value = info.get(key)
    if not _is_number(value) or (float(str(value)) > 100 and "mce" not in key):
        raise UserError(f"{file}: {key} should be a percentage, found {value!r}")
    return round(float(str(value)) / 100, 6)
