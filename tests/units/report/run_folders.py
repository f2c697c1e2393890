"""Three realistic run folders in the exact format that training and evaluation write."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import yaml

from hardtack.results import Result, append_results, parse_threat, wilson, write_arrays, write_verdicts

N = 360
SWEEP = (1, 2, 4, 8, 12, 16, 24, 32)
HOSTILE_NAME = "<script>window.hacked=1<script>"
HOSTILE_CLASS = "</script><script>window.hacked=2</script><img src=x onerror=window.hacked=3>"
RUNS = {  # name: (clean accuracy, how fast accuracy falls with eps in 1/255, objective)
    "standard": (0.981, 3.0, {"name": "standard"}),
    "adversarial": (0.953, 16.0, {"name": "adversarial", "attack": {"name": "pgd", "steps": 7}}),
    "trades": (0.939, 19.0, {"name": "trades", "beta": 6.0, "attack": {"name": "pgd", "steps": 7}}),
}
FLAG = {
    "level": "red",
    "code": "zero-gradient",
    "message": "the input gradient is exactly zero on 12 of 360 images; gradient attacks see nothing there",
}
NOTE = {
    "level": "yellow",
    "code": "few-images",
    "message": "360 images give an interval about ±5 points wide",
}


def make_runs(parent: Path, names=tuple(RUNS)) -> list[Path]:
    return [make_run(parent / name, seed=number) for number, name in enumerate(names)]


def make_run(folder: Path, *, seed: int = 0, sweep=True, examples=True, metrics=True, flags=True, classes=None) -> Path:
    clean, scale, objective = RUNS.get(folder.name, (0.95 - 0.01 * (seed % 9), 6.0 + 2 * seed, {"name": "trades"}))
    folder.mkdir(parents=True)
    write_config(folder, objective, seed)
    if metrics:
        write_metrics(folder, clean, scale, seed)
    images = np.random.default_rng(1)
    difficulty = images.random(N)  # the same images are hard for every run, as in life
    survives = {eps: difficulty < clean * np.exp(-((eps / scale) ** 1.5)) for eps in (0, *SWEEP)}
    write_pgd(folder, survives, scale, flags)
    if sweep:
        write_sweep(folder, survives)
    if examples:
        write_examples(folder, seed, classes, broken=survives[8])
    return folder


def write_config(folder: Path, objective: dict, seed: int) -> None:
    values = {
        "name": folder.name,
        "data": {"name": "digits", "root": None},
        "augment": {"flip": False, "crop_padding": 2},
        "model": {"name": "vit_tiny_patch4_32", "num_classes": 10, "drop_path": 0.0},
        "objective": objective,
        "train": {
            "epochs": 20,
            "batch_size": 128,
            "optimiser": {"name": "adamw", "lr": 0.001, "weight_decay": 0.05},
        },
        "runtime": {"seed": seed, "precision": "fp32", "compile": False},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def write_metrics(folder: Path, clean: float, scale: float, seed: int) -> None:
    noise = np.random.default_rng(seed)
    lines = []
    for step in range(0, 220, 2):
        epoch, part = round(step / 11, 6), step / 220
        loss = 2.3 * np.exp(-3 * part) + 0.4 / scale * 4 + 0.05 * noise.standard_normal()
        rate = 1e-3 * min(1, step / 22) * (1 + np.cos(np.pi * part)) / 2
        train = {
            "kind": "train",
            "step": step,
            "epoch": epoch,
            "loss": loss,
            "lr": rate,
            "images_per_s": 900.0,
        }
        lines.append(train)
        if step % 11 == 10 or step % 22 == 20:
            grown = 1 - np.exp(-4 * part)
            robust = np.exp(-((8 / scale) ** 1.5)) * grown
            validation = {"kind": "validation", "step": step, "epoch": step // 11 + 1}
            lines.append({**validation, "clean_accuracy": clean * grown, "robust_accuracy": clean * robust})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def result(folder: Path, metric: str, hits: np.ndarray, *, evaluation: str, suite: str, **more) -> Result:
    low, high = wilson(int(hits.sum()), len(hits))
    about = {
        "data": "digits/test",
        "data_description": "scikit-learn digits, 3×32×32, fixed split",
        "run": folder.name,
        "model": "vit_tiny_patch4_32",
        "checkpoint": "best",
        "weights_sha256": hashlib.sha256(folder.name.encode()).hexdigest(),
        "seed": 0,
        "precision": "fp32",
        "device": "cpu",
        "versions": {"hardtack": "0.1.0", "torch": "2.11.0", "numpy": "2.2.0"},
        "created": "2026-03-04T09:30:00+00:00",
        "seconds": 12.5,
    }
    return Result(
        metric=metric,
        value=hits.mean(),
        low=low,
        high=high,
        n=len(hits),
        evaluation=evaluation,
        suite=suite,
        **{**about, **more},
    )


def write_pgd(folder: Path, survives: dict, scale: float, flags: bool) -> None:
    attack = {"attack": "pgd steps=20 restarts=1 loss=ce", "attack_settings": {"steps": 20, "restarts": 1}}
    shared = {"evaluation": "pgd-8", "suite": "pgd", "verdicts": "verdicts/pgd-8.parquet"}
    raised = [FLAG] if flags and scale < 5 else [NOTE] if flags and scale > 18 else []
    append_results(
        folder,
        [
            result(folder, "clean_accuracy", survives[0], **shared),
            result(
                folder,
                "robust_accuracy",
                survives[8],
                threat="linf:8/255",
                protocol="pgd-20, one restart, cross-entropy, first 360 test images",
                flags=raised,
                **attack,
                **shared,
            ),
        ],
    )
    robust = survives[8]
    columns = {
        "index": np.arange(N),
        "label": np.arange(N) % 10,
        "clean_prediction": np.where(survives[0], np.arange(N) % 10, (np.arange(N) + 1) % 10),
        "clean_correct": survives[0],
        "robust": robust,
        "broken_by": [None if fine else "pgd" for fine in robust],
        "broken_at_step": np.where(robust, -1, 4),
        "size": np.where(robust, 0.0, 8 / 255),
        "adversarial_prediction": np.where(robust, np.arange(N) % 10, 8),
    }
    write_verdicts(folder / "verdicts" / "pgd-8.parquet", columns)


def write_sweep(folder: Path, survives: dict) -> None:
    points = []
    for eps in SWEEP:
        threat = f"linf:{eps}/255"
        settings = {"steps": 20, "step_size": 2.5 * parse_threat(threat)[1] / 20}
        points.append(
            result(
                folder,
                "robust_accuracy",
                survives[eps],
                evaluation="sweep-linf",
                suite="sweep",
                threat=threat,
                attack="pgd steps=20",
                attack_settings=settings,
                protocol="pgd-20 at eight radii",
            )
        )
    append_results(folder, points)


def write_examples(folder: Path, seed: int, classes, broken: np.ndarray) -> None:
    count, noise = 6, np.random.default_rng(seed)
    x = np.stack([draw_digit(number) for number in range(count)])
    delta = noise.choice([-1.0, 1.0], size=x.shape) * 8 / 255 * (0.9 + 0.1 * noise.random((count, 1, 1, 1)))
    x_adv = np.clip(x / 255 + delta, 0, 1).astype(np.float32)
    robust = broken[:count]
    label = np.arange(count)
    arrays = {
        "x": x,
        "x_adv": x_adv,
        "index": np.arange(count) * 7,
        "label": label,
        "clean_prediction": label,
        "adversarial_prediction": np.where(robust, label, (label * 3 + 5 + seed) % 10),
        "size": np.abs(x_adv - x / 255).max(axis=(1, 2, 3)),
    }
    if classes:
        arrays["classes"] = np.array(classes)
    write_arrays(folder / "examples" / "pgd-8.npz", arrays)


def draw_digit(number: int) -> np.ndarray:
    """A blurred ring or bar on black, 32×32×3 uint8: enough to see a clean and an attacked picture."""
    rows, columns = np.mgrid[0:32, 0:32] - 15.5
    angle = number * 0.6
    across = rows * np.cos(angle) + columns * np.sin(angle)
    along = columns * np.cos(angle) - rows * np.sin(angle)
    ring = np.exp(-((np.hypot(across / 1.4, along) - 7) ** 2) / 6)
    bar = np.exp(-(across**2) / 9) * (np.abs(along) < 12)
    shape = ring if number % 2 else np.maximum(bar, ring * (number % 3 == 0))
    blocks = shape.reshape(8, 4, 8, 4).mean(axis=(1, 3)).repeat(4, 0).repeat(4, 1)
    return np.repeat((255 * blocks / blocks.max()).astype(np.uint8)[..., None], 3, axis=2)
