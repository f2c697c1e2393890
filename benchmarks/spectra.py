"""Do singular values of the Jacobian predict robustness? Dozens of small networks on the digits.

    python benchmarks/spectra.py FOLDER [--workers 2] [--output FILE] [--figure FILE]

Six families of 0.03 to 0.3 million weights (FAMILIES) are trained in twelve ways (TRAININGS), one seed each, without
attacks and with them. Measured on the first 200 test images: the mean l2 distance of the smallest perturbations that
FMN finds (0 for images that are wrong without one), and accuracy under AutoAttack (tier fast, audited) at two radii in
linf. On the first 32: the largest singular values (Lanczos, to a residual of 0.001) of the Jacobians of every block,
with and without its identity, of attention and MLP branches where the family has them, of all blocks together, from
pixels to the last block, and from pixels to logits; the last and the blocks at attacked images, too. `margin over
network` is the mean of margin / σ_max from pixels to logits: the l2 radius that the linear model of the network at an
image gives it. Singular values are about l2, as the distance is.

A quantity predicts robustness *within families* if Spearman's ρ over the trainings of each family, averaged over
families, is far from 0; *between families* likewise, over the families of each training. Only families and trainings
of five networks or more, with four different values, count. Intervals: 95 %, bootstrap over families and trainings at
once; draws with fewer than four different ones are drawn again. They are not adjusted for their number. AutoAttack
counts where it tells networks apart: at the small radius without attacks in training, at the large one with them.
A second call goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

FAMILIES: dict[str, dict[str, Any]] = {
    "ViT": {"name": "vit_digits"},
    "CoViT": {"name": "covit_t1_32", "options": {"width": 64, "patch_size": 8}},
    "XCiT": {
        "name": "xcit_nano_12_patch4_32",
        "options": {"patch_size": 8, "width": 64, "depth": 4, "class_depth": 1, "heads": 4},
    },
    "MLP-Mixer": {"name": "mixer.arg", "options": {"patch_size": 8, "width": 64, "depth": 4}},
    "PVTv2": {
        "name": "pvtv2.arg",
        "options": {"widths": [32, 64], "depths": [2, 2], "heads": [1, 2], "mlp_ratios": [2, 2], "reductions": [2, 1]},
    },
    "PreActResNet": {"name": "preactresnet.arg", "options": {"depths": [1, 1, 1], "width": 8}},
}
PGD = {"name": "pgd", "steps": 2}
TRAININGS: dict[str, dict[str, Any]] = {
    "standard": {},
    "half as long": {"train": {"epochs": 8}},
    "weight decay": {"optimiser": {"weight_decay": 0.3}},
    "label smoothing": {"objective": {"label_smoothing": 0.2}},
    "SAM": {"sharpness": {"name": "sam", "rho": 0.1}},
    "noise": {"objective": {"name": "gaussian", "sigma": 0.15}},
    **{
        f"PGD-AT {eps}": {
            "objective": {"name": "adversarial", "attack": {**PGD, "threat": f"linf:{eps}"}, "warmup": {"epochs": 8}}
        }
        for eps in (0.02, 0.04, 0.07, 0.1, 0.14)
    },
    "TRADES": {
        "objective": {
            "name": "trades", "beta": 3, "attack": {**PGD, "threat": "linf:0.1"}, "warmup": {"epochs": 8},
        }
    },
}  # fmt: skip
WITHOUT = tuple(TRAININGS)[:6]
HALVES = {"all": tuple(TRAININGS), "without attacks": WITHOUT, "with attacks": tuple(TRAININGS)[6:]}
RADII = ("linf:0.01", "linf:0.05")
IMAGES, SPECTRA = 200, 32
PIECES = {
    "block": "blocks", "residual": "blocks without identity", "attention": "attention branches",
    "mlp": "MLP branches", "stretch": "all blocks together", "features": "pixels to the last block",
    "network": "pixels to logits", "block attacked": "blocks, attacked",
    "network attacked": "pixels to logits, attacked",
}  # fmt: skip
RATIO, DISTANCE, FARTHEST = "margin over network", "l2 distance", 12
TARGETS = {"all": (DISTANCE,), "without attacks": (DISTANCE, RADII[0]), "with attacks": (DISTANCE, RADII[1])}
WITHIN = ("within families", "between families", "together")
FEWEST, DIFFERENT, DRAWS = 5, 4, 1000


def measured(run: Path, family: str, training: str, before: dict[str, Any] | None) -> dict[str, Any]:
    """Train one network, and measure what is not measured yet."""
    return add_distance(run, before or attacked_and_analysed(run, family, training))


def attacked_and_analysed(run: Path, family: str, training: str) -> dict[str, Any]:
    import torch

    import hardtack as ht

    torch.set_num_threads(1)
    words = {"objective": {"name": "standard"}, **TRAININGS[training], "model": FAMILIES[family]}
    if training == "label smoothing":
        words["objective"] = {"name": "standard", **words["objective"]}
    ht.train("digits/standard", settings=words, output=run, quiet=True)
    values: dict[str, Any] = {"family": family, "training": training}
    for threat in RADII:
        found = ht.evaluate_run(run, suite="autoattack", tier="fast", threat=threat, n=IMAGES, quiet=True)[0]
        values |= {"clean": found.clean_accuracy, threat: found.robust_accuracy}
        values.setdefault("flags", []).extend(flag["code"] for flag in found.flags if flag["level"] == "red")
    model, data = ht.load_run(run), ht.load_data("digits", "test")
    x, y, _ = data.batch(range(SPECTRA))
    pieces = ["block", "residual", "stretch", "features", "network"]
    has_branches = family in ("ViT", "CoViT", "XCiT", "PVTv2")
    pieces += ["attention", "mlp"] if has_branches else []
    clean = ht.analyze(model, (x, y), "jacobian", of=pieces, quiet=True)
    moved = ht.analyze(model, (x, y), "jacobian", of=["block", "network"], threat=RADII[1], quiet=True)
    for name in PIECES:
        result = clean.of("sigma_max", name) or moved.of("sigma_max", name)
        if result is not None:
            values[name] = result.value
    logits = model(x).detach()
    own = logits.gather(1, y[:, None])[:, 0]
    margin = own - logits.scatter(1, y[:, None], -torch.inf).amax(dim=1)
    sigma = clean.arrays["sigma_network"][:, 0, 0]
    values[RATIO] = float(np.mean(np.maximum(margin.numpy(), 0) / sigma))
    return values


def add_distance(run: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The mean l2 distance of the smallest perturbations that make an image wrong."""
    import torch

    import hardtack as ht

    torch.set_num_threads(1)
    curve = ht.evaluate_run(run, suite="curve", threat=f"l2:{FARTHEST}", sweep=(0, 1), n=IMAGES, quiet=True)[0]
    size = np.where(curve.robust, FARTHEST, curve.verdicts["size"])
    return {**values, DISTANCE: float(np.where(curve.verdicts["clean_correct"], size, 0.0).mean())}


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's ρ; None where there are too few different values."""
    if len({*x}) < DIFFERENT or len({*y}) < DIFFERENT:
        return None
    a, b = (stats.rankdata(values) - (len(values) + 1) / 2 for values in (x, y))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


class Grid:
    """Quantity and target of every network, families × trainings; nan where a network has no such quantity."""

    def __init__(self, rows: list[dict[str, Any]], quantity: str, target: str) -> None:
        families, trainings = ([*dict.fromkeys(row[key] for row in rows)] for key in ("family", "training"))
        self.x, self.y = np.full((2, len(families), len(trainings)), np.nan)
        for row in rows:
            place = families.index(row["family"]), trainings.index(row["training"])
            if quantity in row:
                self.x[place], self.y[place] = row[quantity], row[target]

    def mean(self, families: np.ndarray, trainings: np.ndarray, within: str) -> float | None:
        """ρ averaged over strata; None where no stratum has enough networks."""
        x, y = self.x[np.ix_(families, trainings)], self.y[np.ix_(families, trainings)]
        if within == "together":
            there = ~np.isnan(x)
            return rank_correlation(x[there], y[there])
        if within == "between families":
            x, y = x.T, y.T
        enough = [~np.isnan(part) for part in x]
        each = [
            rank_correlation(one[there], other[there])
            for one, other, there in zip(x, y, enough, strict=True)
            if there.sum() >= FEWEST
        ]
        each = [value for value in each if value is not None]
        return float(np.mean(each)) if each else None


def correlation(rows: list[dict[str, Any]], quantity: str, target: str, within: str) -> list[float] | None:
    """[ρ, low, high] within families, between families or over all networks together."""
    grid = Grid(rows, quantity, target)
    families, trainings = (np.arange(size) for size in grid.x.shape)
    value = grid.mean(families, trainings, within)
    if value is None:
        return None
    generator, draws = np.random.default_rng(0), []
    while len(draws) < DRAWS:
        some = generator.choice(families, len(families)), generator.choice(trainings, len(trainings))
        if min(len({*part.tolist()}) for part in some) >= DIFFERENT and (drawn := grid.mean(*some, within)) is not None:
            draws.append(drawn)
    low, high = np.percentile(draws, [2.5, 97.5])
    return [round(number, 2) for number in (value, float(low), float(high))]


def correlations(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By half of the trainings, target and quantity."""
    table: dict[str, Any] = {}
    for half, trainings in HALVES.items():
        inside = [row for row in rows if row["training"] in trainings]
        for target in TARGETS[half]:
            table.setdefault(half, {})[target] = {
                quantity: {within: correlation(inside, quantity, target, within) for within in WITHIN}
                for quantity in (*PIECES, RATIO, "clean")
            }
    return table


def figure(rows: list[dict[str, Any]], file: Path) -> None:
    """Distance against three quantities; a colour for each family, hollow where training had no attack."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    panels = {"block": "mean σ_max of the blocks", "network": "σ_max, pixels to logits",
              RATIO: "margin / σ_max, pixels to logits"}  # fmt: skip
    drawing, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True)
    for axis, (quantity, title) in zip(axes, panels.items(), strict=True):
        for number, family in enumerate(FAMILIES):
            for attacked in (False, True):
                inside = [
                    row for row in rows if row["family"] == family and (row["training"] not in WITHOUT) is attacked
                ]
                axis.scatter(
                    [row[quantity] for row in inside], [row[DISTANCE] for row in inside], s=26,
                    facecolors=f"C{number}" if attacked else "none", edgecolors=f"C{number}",
                    label=family if attacked else None,
                )  # fmt: skip
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
        for part in (axis.xaxis, axis.yaxis):
            part.set_major_formatter("{x:g}")
            part.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("mean l2 distance of the smallest perturbations")
    axes[0].legend(fontsize=8)
    drawing.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/spectra"), help="of the runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--families", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    parser.add_argument("--trainings", nargs="+", choices=tuple(TRAININGS), default=tuple(TRAININGS))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows, left = [], {}
    with concurrent.futures.ProcessPoolExecutor(options.workers) as pool:
        for family in options.families:
            for training in options.trainings:
                run = options.folder / f"{family}-{training}".replace(" ", "_").lower()
                known = run.with_suffix(".json") if "." not in run.name else run.parent / f"{run.name}.json"
                before = json.loads(known.read_text()) if known.is_file() else None
                if before is None or DISTANCE not in before:
                    left[pool.submit(measured, run, family, training, before)] = known
                else:
                    rows.append(before)
        for future in concurrent.futures.as_completed(left):
            rows.append(future.result())
            left[future].write_text(json.dumps(rows[-1]))
            print(rows[-1], flush=True)
    order = [(family, training) for family in FAMILIES for training in TRAININGS]
    rows.sort(key=lambda row: order.index((row["family"], row["training"])))
    rounded = [{key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    record = {
        "command": "python benchmarks/spectra.py FOLDER", "date": datetime.date.today().isoformat(),
        "device": f"{os.cpu_count()} CPU cores, {platform.machine()}", "torch": version("torch"), "data": "digits",
        "images": IMAGES, "images_of_spectra": SPECTRA, "networks": rounded,
        "spearman": correlations(rows),
    }  # fmt: skip
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        figure(rows, options.figure)
    for half, targets in record["spearman"].items():
        for target, quantities in targets.items():
            for quantity, values in quantities.items():
                print(half, target, quantity, values, sep=" | ")


if __name__ == "__main__":
    main()
