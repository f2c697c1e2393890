"""Small run folders whose answers can be counted by hand: three trainings, eight images of two classes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hardtack.base.digests import json_digest
from hardtack.results import Result, append_results, read_results, read_verdicts, wilson, write_verdicts
from hardtack.results.evidence import write_evidence
from hardtack.results.protocol_rows import protocol_id

LABEL = np.arange(8) % 2
CLEAN = {"standard": "11111111", "trades-0": "11111101", "trades-1": "11111011"}  # right without attack, by image
ROBUST = {"standard": "00000000", "trades-0": "11110000", "trades-1": "11101010"}
FOG = {"standard": "11110000", "trades-0": "11111100", "trades-1": "11111000"}
PIXELATE = {"standard": "11111110", "trades-0": "11111101", "trades-1": "11111011"}
VALIDATED = {"standard": [0.0, 0.0], "trades-0": [0.6, 0.5], "trades-1": [0.4, 0.5]}  # robust accuracy by epoch


def make_query_runs(parent: Path, *, evidence: bool = True) -> Path:
    for name in CLEAN:
        _write_run(parent / name, evidence=evidence)
    untrained = parent / "untrained"
    untrained.mkdir(parents=True)
    (untrained / "config.yaml").write_text("name: untrained\nmodel: {name: vit_digits}\n")
    return parent


def bits(text: str) -> np.ndarray:
    return np.array([letter == "1" for letter in text])


def _write_run(folder: Path, *, evidence: bool) -> None:
    objective, _, seed = folder.name.partition("-")
    config = {
        "name": folder.name, "model": {"name": "vit_digits"}, "data": {"name": "digits"},
        "objective": {"name": objective, **({"attack": {"threat": "linf:0.1"}} if seed else {})},
        "train": {"epochs": 2}, "runtime": {"seed": int(seed or 0)},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines: list[dict[str, Any]] = []
    for epoch, robust in enumerate(VALIDATED[folder.name], start=1):
        lines.append({"kind": "train", "step": 5 * epoch, "epoch": epoch, "loss": 2.0 / epoch, "parts": [1, 2]})
        lines.append({
            "kind": "validation", "step": 5 * epoch, "epoch": epoch, "clean_accuracy": 0.5 + epoch / 10,
            "robust_accuracy": robust,
        })  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    attacked(folder, bits(ROBUST[folder.name]), evidence=evidence)
    corrupted(folder)


def attacked(folder: Path, robust: np.ndarray, *, threat: str = "linf:0.1", evidence: bool = True, **more: Any) -> None:
    """An evaluation with AutoAttack at one threat; with `evidence` its record, so that all of it agrees."""
    clean = bits(CLEAN[folder.name])
    robust = robust & clean
    broken = clean & ~robust
    columns = {
        "index": np.arange(8), "label": LABEL, "clean_prediction": np.where(clean, LABEL, 1 - LABEL),
        "clean_correct": clean, f"robust@{threat}": robust, "robust": robust,
        "broken_by": np.array([f"apgd {threat}" if entry else None for entry in broken], dtype=object),
        "broken_at_step": np.where(broken, 3, -1), "size": np.where(broken, 0.1, np.nan).astype(np.float32),
        "adversarial_prediction": np.where(robust, LABEL, 1 - LABEL), "attacked": clean,
        "forwards": np.full(8, 100), "backwards": np.full(8, 90), "unverified": np.zeros(8, bool),
    }  # fmt: skip
    facts = {"suite": "autoattack", "model": folder.name, "threat": threat, **more}
    id = f"autoattack-{json_digest(list(facts.values()))[:12]}"
    counts = {"unverified": 0, "forwards": 800, "backwards": 720, "broken_by": {f"apgd {threat}": int(broken.sum())}}
    common = {"suite": "autoattack", "evaluation": id, "seconds": 16.0, "extra": {"parameters": 1000, **counts}, **more}
    settings = {"version": "standard", "tier": "fast"}
    results = [
        measured(folder, "clean_accuracy", clean, **common, verdicts=f"verdicts/{id}.parquet"),
        measured(
            folder, "robust_accuracy", robust, threat=threat, attack="autoattack standard tier=fast",
            attack_settings=settings, **common, verdicts=f"verdicts/{id}.parquet",
        ),
    ]  # fmt: skip
    write_verdicts(folder / "verdicts" / f"{id}.parquet", columns)
    append_results(folder, results)
    if evidence:
        write_evidence(folder, results, columns, facts=facts, common={}, flags=[])


def of_protocol(folder: Path) -> None:
    """A row of a protocol with copies of the numbers of `attacked`, and the worst of them."""
    source = [result for result in read_results(folder) if result.suite == "autoattack"]
    verdicts = read_verdicts(folder / str(source[0].verdicts))
    vectors = {"clean": verdicts["clean_correct"].astype(float), "AA": verdicts["robust"].astype(float)}
    vectors["worst"] = vectors["AA"]
    id = protocol_id("mine 1", [source[0].evaluation], list(vectors))
    write_verdicts(
        folder / "verdicts" / f"{id}.parquet",
        {"index": verdicts["index"], **{f"value@{name}": vector for name, vector in vectors.items()}},
    )
    clean, robust = sorted(source, key=lambda result: result.metric)
    worst = dataclasses.replace(robust, metric="worst_case_accuracy", attack="AA + AA")
    rows = []
    for place, (column, result) in enumerate(zip(vectors, (clean, robust, worst), strict=True)):
        extra = {"column": column, "place": place, "measured_by": source[0].evaluation}
        about = {"suite": "protocol", "protocol": "mine 1", "evaluation": id, "verdicts": f"verdicts/{id}.parquet"}
        rows.append(dataclasses.replace(result, **about, extra=extra))
    append_results(folder, rows)


def corrupted(folder: Path) -> None:
    views = {"fog/1": bits(FOG[folder.name]), "pixelate/1": bits(PIXELATE[folder.name])}
    clean = bits(CLEAN[folder.name])
    id = f"corruptions-{len(folder.name):012d}"
    columns = {
        "index": np.arange(8), "label": LABEL, "clean_prediction": np.where(clean, LABEL, 1 - LABEL),
        "clean_correct": clean, **{f"correct@{view}": values for view, values in views.items()},
    }  # fmt: skip
    write_verdicts(folder / "verdicts" / f"{id}.parquet", columns)
    common = {
        "suite": "corruptions", "evaluation": id, "verdicts": f"verdicts/{id}.parquet",
        "attack_settings": {"types": ["fog", "pixelate"]}, "extra": {"source": "regenerated"},
    }  # fmt: skip
    mean = np.mean([*views.values()], axis=0)
    results = [
        measured(folder, "clean_accuracy", clean, **common),
        measured(folder, "mean_corrupted_accuracy", mean, **common),
    ]
    append_results(folder, results)


def measured(folder: Path, metric: str, values: np.ndarray, **more: Any) -> Result:
    share = values.dtype == bool
    low, high = wilson(int(values.sum()), len(values)) if share else (None, None)
    about: dict[str, Any] = {
        "data": "digits/test", "data_description": "first 8", "run": folder.name, "model": "vit_digits",
        "checkpoint": "best", "precision": "fp32", "device": "cpu", "created": "2026-03-04T09:30:00+00:00",
    }  # fmt: skip
    return Result(
        metric=metric, value=float(values.mean()), low=low, high=high, n=len(values),
        interval="wilson 95%" if share else "none", **{**about, **more},
    )  # fmt: skip


def change_result(folder: Path, metric: str, **changed: Any) -> None:
    """Forge a line of results.jsonl."""
    from hardtack.results import read_results, to_json

    results = [
        dataclasses.replace(result, **changed) if result.metric == metric else result for result in read_results(folder)
    ]
    (folder / "results.jsonl").write_text("".join(to_json(result) + "\n" for result in results))
