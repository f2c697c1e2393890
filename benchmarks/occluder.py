"""RSPC's occluder: does its gradient point at the patches that matter, and what do other gradients of it bring?

    python benchmarks/occluder.py FOLDER [--seeds 0 1 2] [--output FILE]

Two measurements on the digits, in FOLDER; a second call goes on where the first one stopped:

    gradient   of the alignment in the mask, at patches that are hidden and at those that are not, beside what hiding
               each of them really adds to the alignment (the difference of two passes)
    forms      the network of digits/rspc, trained as usual, with random patches, and against the occluder in several
               forms: accuracy with 4 of 16 patches occluded (100 masks) and under corruptions, on all 359 test images

The forms are not ranked by anything here, so nothing is selected on test images.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import hardtack as ht
from hardtack.objectives import RSPCConfig
from hardtack.results import read_metrics

OCCLUDER = "objective.occluder."
FORMS: dict[str, dict[str, Any]] = {
    "random patches": {"objective.choose": "random"},
    "published gradient": {},
    "per_image": {OCCLUDER + "per_image": True},
    "temperature 0.5": {OCCLUDER + "temperature": 0.5},
    "variety 1": {OCCLUDER + "variety": 1},
    "credit": {OCCLUDER + "credit": "hidden"},
    "credit, explore 0.3": {OCCLUDER + "credit": "hidden", OCCLUDER + "explore": 0.3},
}
SHARE = 0.2
IMAGES = 64


def gradient(run: Path) -> dict[str, Any]:
    """The gradient in a random mask, and what hiding each patch really adds, on the first test images."""
    model = ht.load_run(run)
    x, _, keys = ht.load_data("digits", "test").batch(range(IMAGES))
    objective = RSPCConfig(weight=1.0, share=SHARE, choose="random").build(model)
    objective.prepare(x, torch.zeros(IMAGES, dtype=torch.long), keys=keys)
    side = x.shape[-1] // objective.patch_size

    def distance(mask: Tensor, rows: slice) -> Tensor:
        objective.alignment.begin()
        model(torch.cat([objective._damaged(x[rows], mask[rows], keys[rows]), x[rows]]))
        return objective.alignment.end()

    order = torch.rand(IMAGES, side * side, generator=torch.Generator().manual_seed(0)).argsort(dim=1)
    hidden = order < int(SHARE * (side * side - 1) + 1e-9) + 1
    mask = hidden.float().reshape(-1, side, side).requires_grad_()
    found = torch.autograd.grad(distance(mask, slice(None)) * IMAGES, mask)[0].flatten(1)
    effect = torch.zeros_like(found)
    with torch.no_grad():
        for row in range(IMAGES):
            one = slice(row, row + 1)
            now = distance(mask, one)
            for patch in range(side * side):
                other = mask.detach().clone()
                other.view(IMAGES, -1)[row, patch] = 0.0 if hidden[row, patch] else 1.0
                added = distance(other, one) - now
                effect[row, patch] = -added if hidden[row, patch] else added
    return {
        "images": IMAGES, "patches": side * side, "hidden": int(hidden[0].sum()),
        "at hidden patches": _compared(found[hidden], effect[hidden]),
        "at others": _compared(found[~hidden], effect[~hidden]),
        "rank correlation of all": round(float(stats.spearmanr(found.flatten(), effect.flatten())[0]), 3),
    }  # fmt: skip


def _compared(found: Tensor, effect: Tensor) -> dict[str, float]:
    return {
        "mean gradient": round(float(found.mean()), 4),
        "mean effect of hiding": round(float(effect.mean()), 4),
        "rank correlation": round(float(stats.spearmanr(found, effect)[0]), 3),
    }


def measured(run: Path) -> dict[str, float]:
    """Accuracies of a run in percent, and how different its last masks were."""
    values: dict[str, float] = {}
    occluded = {"patches": {"kinds": ["occlude"], "share": SHARE, "masks": 100}}
    for suite, settings in {"clean": {}, "patches": occluded, "corruptions": {"confidence": False}}.items():
        for result in ht.evaluate_run(run, suite=suite, quiet=True, **settings)[0].results:
            if result.metric in ("clean_accuracy", "patch_accuracy", "mean_corrupted_accuracy"):
                values[result.metric] = round(100 * result.value, 2)
    lines = [line for line in read_metrics(run) if "mask_variety" in line]
    return values | ({"mask_variety": round(lines[-1]["mask_variety"], 3)} if lines else {})


def forms(folder: Path, seeds: list[int]) -> dict[str, Any]:
    """Every form with every seed, and its gain over random patches: the mean over seeds and its 95 % interval (t)."""
    rows: dict[str, Any] = {}
    for name, words in {"no RSPC": None, **FORMS}.items():
        for seed in seeds:
            run = folder / f"{name.replace(', ', '_').replace(' ', '_')}-{seed}"
            recipe, settings = ("digits/standard", {}) if words is None else ("digits/rspc", words)
            learned = words is not None and name != "random patches"
            seeded = {"runtime.seed": seed} | ({OCCLUDER + "seed": seed} if learned else {})
            ht.train(recipe, settings=settings | seeded, output=run, quiet=True)
            rows.setdefault(name, []).append(measured(run))
            print(name, seed, rows[name][-1], flush=True)
    table = {}
    for name, runs in rows.items():
        table[name] = {metric: [run[metric] for run in runs] for metric in runs[0]}
        for metric in ("patch_accuracy", "mean_corrupted_accuracy"):
            gains = np.array(table[name][metric]) - np.array([run[metric] for run in rows["random patches"]])
            if name != "random patches" and len(seeds) > 1:
                half = stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5
                table[name][f"{metric} over random"] = [round(float(v), 2) for v in (gains.mean(), half)]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="build/occluder", help="of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    table = forms(Path(options.folder), options.seeds)
    record = {
        "command": "python benchmarks/occluder.py FOLDER --seeds " + " ".join(map(str, options.seeds)),
        "date": datetime.date.today().isoformat(), "torch": torch.__version__, "device": "CPU", "data": "digits",
        "gradient": {name: gradient(Path(options.folder) / f"{name.replace(' ', '_')}-{options.seeds[0]}")
                     for name in ("no RSPC", "published gradient")},
        "forms": table,
    }  # fmt: skip
    print(json.dumps(record, indent=2))
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
