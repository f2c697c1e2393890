"""Hundreds of small run folders with verdicts and evidence, as `hardtack evaluate` leaves them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml

from hardtack.base.digests import json_digest
from hardtack.results import Result, append_results, verdicts_path, wilson, write_verdicts
from hardtack.results.evidence import write_evidence

MODELS = {
    "vit_tiny_patch4_32": 5_400_000,
    "preact_resnet18": 11_200_000,
    "xcit_s12": 26_300_000,
    "wrn_28_10": 36_500_000,
}
THREATS = ("linf:8/255", "l2:0.5")
IMAGES = 200
RED = {"level": "red", "code": "zero_gradients", "message": "the input gradient is zero on 40 of 200 images"}


def make_many(parent: Path, count: int, *, metrics: bool = False) -> list[Path]:
    """Runs of four architectures on two data sets: the first three of ten are attacked at two threats."""
    return [make_small(parent / f"run-{number:03d}", number, metrics=metrics) for number in range(count)]


def make_small(folder: Path, number: int, *, metrics: bool = False, flags=(), data: str | None = None) -> Path:
    """One run, measured by AutoAttack, with a number between 20 and 70 % that depends on `number` alone."""
    noise = np.random.default_rng(number)
    model = list(MODELS)[number % len(MODELS)]
    data = data or ("cifar10/test" if number % 5 else "cifar100/test")
    folder.mkdir(parents=True)
    config = {"name": folder.name, "model": {"name": model}, "train": {"epochs": 10, "batch_size": 128}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    if metrics:
        lines = [{"kind": "train", "step": step, "epoch": step / 10, "loss": 2.3 - step / 50} for step in range(100)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    clean = noise.random(IMAGES) < 0.6 + 0.3 * noise.random()
    for threat in THREATS if number % 10 < 3 else THREATS[:1]:
        robust = clean & (noise.random(IMAGES) < 0.3 + 0.5 * noise.random())
        measured(folder, model, data, threat, clean, robust, flags=flags or ((RED,) if number % 50 == 7 else ()))
    return folder


def make_light(parent: Path, count: int) -> None:
    """As `make_many`, without verdicts and evidence, and so without waiting for the disk: for pages, not for checks."""
    noise = np.random.default_rng(0)
    for number in range(count):
        folder, model = parent / f"light-{number:03d}", list(MODELS)[number % len(MODELS)]
        folder.mkdir(parents=True)
        clean = 0.5 + 0.45 * noise.random()
        about = {
            "n": 10_000, "suite": "autoattack", "data": "cifar10/test", "evaluation": "autoattack-0",
            "run": folder.name, "model": model, "checkpoint": "best", "created": "2026-03-04T09:30:00+00:00",
            "precision": "fp32", "extra": {"parameters": MODELS[model]},
        }  # fmt: skip
        settings = {"version": "standard", "tier": "verified"}
        attacked = {"attack": "autoattack version=standard", "attack_settings": settings, "threat": "linf:8/255"}
        lines = [
            {"metric": "clean_accuracy", "value": clean, **about},
            {"metric": "robust_accuracy", "value": clean * noise.random(), **about, **attacked},
        ]
        (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def measured(folder: Path, model: str, data: str, threat: str, clean, robust, *, flags=()) -> str:
    """Results, verdicts and the evidence record of one evaluation; returns its id."""
    facts = {"suite": "autoattack", "threat": threat, "data": data, "folder": folder.name}
    id = f"autoattack-{json_digest(list(facts.values()))[:12]}"
    shared = {
        "suite": "autoattack", "data": data, "data_description": "", "run": folder.name, "model": model,
        "checkpoint": "best", "weights_sha256": json_digest(folder.name), "seed": 0, "precision": "fp32",
        "device": "cpu", "seconds": 12.5, "versions": {"hardtack": "0.1.0"}, "created": "2026-03-04T09:30:00+00:00",
    }  # fmt: skip
    rows = {"evaluation": id, "verdicts": f"verdicts/{id}.parquet", "extra": {"parameters": MODELS[model]}}
    settings = {"version": "standard", "tier": "verified"}
    attacked = {"attack": "autoattack version=standard", "attack_settings": settings, "threat": threat, "flags": flags}
    results = []
    for metric, hits, more in (("clean_accuracy", clean, {}), ("robust_accuracy", robust, attacked)):
        low, high = wilson(int(hits.sum()), len(hits))
        value = float(hits.mean())
        results.append(Result(metric=metric, value=value, low=low, high=high, n=len(hits), **shared, **rows, **more))
    label = np.arange(len(clean)) % 10
    columns = {
        "index": np.arange(len(clean)),
        "label": label,
        "clean_prediction": np.where(clean, label, (label + 1) % 10),
        "clean_correct": clean,
        f"robust@{threat}": robust,
        "robust": robust,
        "broken_by": [None if stood or not right else "apgd-ce" for stood, right in zip(robust, clean, strict=True)],
    }
    append_results(folder, results)
    write_verdicts(verdicts_path(folder, id), columns)
    write_evidence(folder, results, columns, facts=facts, common=shared, flags=list(flags))
    return id
