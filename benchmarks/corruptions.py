"""Corruptions, ours and a plain NumPy, SciPy and Pillow implementation's: how fast, and how alike.

    python benchmarks/corruptions.py --device cuda --pixels 32 -n 10000 --reference-n 300 --fidelity-n 3000 \\
        --root ~/data --frost ~/data/frost --model runs/x --output benchmarks/results/corruptions_cuda_32.json
    python benchmarks/corruptions.py --output benchmarks/results/corruptions_cuda_32.json --table docs/corruptions.md

Speed: the fifteen common types at five severities over the first N test images of CIFAR-10 (enlarged for
--pixels 224, where the constants are ImageNet's), which lie on the device, as does the result. `seconds` is the best
of --repeats after a first call, whose seconds (`first_s`) include what is built once and kept. The reference
(corruptions_reference.py) takes M of the images on one core, alone, and its seconds are scaled to N. It opens frost's
overlay file for every image, as the published scripts do; what it would take with the overlays kept is given too.

Fidelity: mean absolute and root mean square change of an image, in grey levels, by ours and by the reference on the
same images (M, or --fidelity-n over all cores), and with --model the accuracy on both. Their differences are paired,
image by image, and given in standard errors: within two or three of them only the random numbers differ. Where nothing
is random the two are equal, or a rare rounding apart (`differing`, the share of values that are not the same).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import functools
import json
import math
import multiprocessing
import os
import platform
import resource
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corruptions_reference as reference
import numpy as np
import PIL
import scipy
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hardtack as ht
from hardtack.data.corruptions import COMMON, Constants, corrupt, frost_source
from hardtack.data.corruptions.catalogue import SEVERITIES
from hardtack.evaluation.target import load_run

Array = reference.Array
Make = Callable[[Tensor, Tensor, str, int], Tensor]
NOT_RANDOM = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
METRICS = ("mean_change", "rms_change", "accuracy")


def load_images(source: str, root: str, count: int, pixels: int) -> tuple[Tensor, Tensor, Tensor]:
    """N×3×S×S in steps of 1/255, labels and numbers of the first test images, on the CPU."""
    data = ht.load_data(source, "test", root=root)
    x, y, index = data.batch(range(min(count, len(data))))
    if x.shape[-1] != pixels:
        parts = [F.interpolate(part, size=(pixels, pixels), mode="bicubic") for part in x.split(500)]
        x = torch.cat(parts).clamp_(0, 1).mul_(255).round_().div_(255)
    return x, y, index


def as_arrays(x: Tensor) -> Array:
    return (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()


def as_tensor(images: Array, device: str) -> Tensor:
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float() / 255


# ---------------------------------------------------------------- speed


def seconds(function: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def time_ours(make: Make, x: Tensor, index: Tensor, name: str, *, batch: int, repeats: int) -> dict[str, Any]:
    """Seconds of each severity over all images, and the most memory that the type takes."""
    device = x.device.type

    def over(x: Tensor, severity: int) -> None:
        for part, numbers in zip(x.split(batch), index[: len(x)].split(batch), strict=True):
            make(part, numbers, name, severity)

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    # a GPU's first call also finds its memory, so it must be as large as the others
    few = x if device == "cuda" else x[: min(len(x), 32)]
    first = sum(seconds(functools.partial(over, few, severity), device) for severity in SEVERITIES)
    spent = [
        min(seconds(functools.partial(over, x, severity), device) for _ in range(repeats)) for severity in SEVERITIES
    ]
    found = {"seconds": sum(spent), "severities_s": spent, "images_s": len(SEVERITIES) * len(x) / sum(spent)}
    found |= {"first_s": first, "first_n": len(few)}
    return found | ({"peak_mb": torch.cuda.max_memory_allocated() / 2**20} if device == "cuda" else {})


def resident_mb() -> float:
    """The most memory the process has held (`ru_maxrss` counts kilobytes on Linux, bytes on macOS)."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


# ---------------------------------------------------------------- fidelity


def in_processes(images: Array, name: str, severity: int, constants: str, folder: Path, pool: Any) -> Array:
    """The reference over all cores, with random numbers that belong to the part, whatever the cores; not timed."""
    at_once = max(1, 2**16 // (images.shape[1] * images.shape[2]))
    parts = [images[start : start + at_once] for start in range(0, len(images), at_once)]
    jobs = [
        pool.submit(reference.corrupt, part, name, severity, constants, folder=folder, seed=1 + number)
        for number, part in enumerate(parts)
    ]
    return np.concatenate([job.result()[0] for job in jobs])


def measure_images(made: Array, clean: Array, y: Tensor, judge: nn.Module | None, device: str) -> dict[str, Array]:
    """Metric to a number for each image."""
    change = made.astype(np.float32) - clean
    found = {
        "mean_change": np.abs(change).mean(axis=(1, 2, 3), dtype=np.float64),
        "rms_change": np.sqrt(np.square(change).mean(axis=(1, 2, 3), dtype=np.float64)),
    }
    if judge is not None:
        found["accuracy"] = judged(judge, made, y, device)
    return found


@torch.no_grad()
def judged(judge: nn.Module, images: Array, y: Tensor, device: str) -> Array:
    """Right or wrong. Images that are too large for the model are shrunk to its size."""
    size, right = getattr(judge, "image_size", None), []
    for start in range(0, len(images), 500):
        x = as_tensor(images[start : start + 500], device)
        if size is not None and x.shape[-1] != size:
            x = F.interpolate(x, size=(size, size), mode="area")
        right.append((judge(x).argmax(dim=1).cpu() == y[start : start + 500]).numpy())
    return np.concatenate(right).astype(np.float64)


def compare(ours: dict[str, Array], theirs: dict[str, Array]) -> dict[str, Any]:
    """Means over images, the standard error of each, and the paired difference in standard errors of its own."""
    found = {}
    for metric, here in ours.items():
        there = theirs[metric]
        difference, error = float((here - there).mean()), standard_error(here - there)
        found[metric] = {
            "ours": float(here.mean()), "reference": float(there.mean()),
            "ours_error": standard_error(here), "reference_error": standard_error(there),
            "difference": difference, "difference_error": error,
            "errors": difference / error if error > 0 else 0.0,
        }  # fmt: skip
    return found


def standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


# ---------------------------------------------------------------- the whole


def processor() -> str:
    """The CPU by name, where Linux tells."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def facts(arguments: argparse.Namespace, constants: str) -> dict[str, Any]:
    cuda = arguments.device == "cuda"
    return {
        "command": "python benchmarks/corruptions.py " + " ".join(sys.argv[1:]),
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if cuda else processor(),
        "threads": torch.get_num_threads(), "cores": os.cpu_count(), "pixels": arguments.pixels,
        "constants": constants, "data": arguments.data, "frost": frost_source(arguments.frost),
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
            "scipy": scipy.__version__, "pillow": PIL.__version__,
        },
    }  # fmt: skip


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device, folder, pixels = arguments.device, arguments.frost, arguments.pixels
    constants: Constants = "cifar" if pixels <= 64 else "imagenet"
    make = functools.partial(corrupt, constants=constants, frost=folder)
    x, y, index = load_images(arguments.data, arguments.root, arguments.n, pixels)
    n, timed_n = len(x), min(len(x), arguments.reference_n)
    alike_n = min(n, max(timed_n, arguments.fidelity_n or 0))
    batch = arguments.batch or (10_000 if pixels <= 64 else 500)
    found = facts(arguments, constants) | {"n": n, "reference_n": timed_n, "fidelity_n": alike_n, "batch": batch}

    x, index = x.to(device), index.to(device)
    found |= {"images_mb": x.numel() * 4 / 2**20, "resident_before_mb": resident_mb()}
    types: dict[str, Any] = {}
    for name in COMMON:
        types[name] = {"ours": time_ours(make, x, index, name, batch=batch, repeats=arguments.repeats)}
        print(f"{name}: {types[name]['ours']['images_s']:,.0f} images/s", flush=True)
    found |= {"types": types, "resident_peak_mb": resident_mb()}

    x, y, index = x[:alike_n], y[:alike_n], index[:alike_n]
    clean = as_arrays(x)
    judge = load_run(arguments.model).to(device).eval() if arguments.model else None
    if judge is not None:
        found |= {"model": arguments.model, "clean_accuracy": float(judged(judge, clean, y, device).mean())}
    spawn = multiprocessing.get_context("spawn")  # a process that has used CUDA cannot be forked
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        for name in COMMON:
            spent, fidelity = 0.0, {}
            for severity in SEVERITIES:
                # on one core, and nothing beside it: the pool is idle
                theirs, took = reference.corrupt(clean[:timed_n], name, severity, constants, folder=folder)
                spent += took
                if alike_n > timed_n:
                    more = in_processes(clean[timed_n:], name, severity, constants, folder, pool)
                    theirs = np.concatenate([theirs, more])
                parts = zip(x.split(500), index.split(500), strict=True)
                ours = np.concatenate([as_arrays(make(*part, name, severity)) for part in parts])
                both = [measure_images(made, clean, y, judge, device) for made in (ours, theirs)]
                fidelity[str(severity)] = compare(*both) | {"differing": float((ours != theirs).mean())}
            types[name] |= {"reference": {"seconds": spent * n / timed_n, "measured_s": spent}, "fidelity": fidelity}
            print(f"{name}: reference {len(SEVERITIES) * timed_n / spent:,.0f} images/s", flush=True)
    for _ in range(2):  # the first time opens the files
        kept = sum(
            reference.corrupt(clean[:timed_n], "frost", severity, constants, folder=folder, keep_overlays=True)[1]
            for severity in SEVERITIES
        )
    return found | {"total": total(types, kept * n / timed_n)}


def total(types: dict[str, Any], kept_s: float) -> dict[str, Any]:
    ours, theirs = (sum(row[who]["seconds"] for row in types.values()) for who in ("ours", "reference"))
    kept = theirs - types["frost"]["reference"]["seconds"] + kept_s
    found = {"ours_s": ours, "first_s": sum(row["ours"]["first_s"] for row in types.values())}
    found |= {"reference_s": theirs, "ratio": theirs / ours}
    found |= {"frost_overlays_kept_s": kept_s, "reference_overlays_kept_s": kept, "ratio_overlays_kept": kept / ours}
    if "peak_mb" in types["frost"]["ours"]:
        found["peak_mb"] = max(row["ours"]["peak_mb"] for row in types.values())
    return found


# ---------------------------------------------------------------- the table


def mark(device: str, pixels: int) -> str:
    return f"<!-- written by benchmarks/corruptions.py: {device}, {pixels} pixels -->"


def farthest(fidelity: dict[str, Any], metric: str, key: str) -> float:
    """Over the severities, the value that is farthest from 0."""
    return max((row[metric][key] for row in fidelity.values()), key=abs)


def account(found: dict[str, Any]) -> str:
    """What was measured, and the sums, in words."""
    whole = found["total"]
    where, memory = (
        found["device"],
        f"GPU memory {whole.get('peak_mb', 0):,.0f} MB, images {found['images_mb']:,.0f} MB",
    )
    if "peak_mb" not in whole:
        where += f" (threads: {found['threads']})"
        memory = f"process {found['resident_peak_mb']:,.0f} MB, {found['resident_before_mb']:,.0f} MB before"
    return (
        f"{found['n']:,} images of {found['pixels']} pixels, {where}, {found['date']}: {whole['ours_s']:.3g} s, "
        f"{whole['ratio']:,.0f} times as fast as the reference on one core ({whole['reference_s']:,.0f} s, scaled from "
        f"{found['reference_n']:,} images; {whole['ratio_overlays_kept']:,.0f} times if it kept frost's overlays in "
        f"memory). Peak memory: {memory}. Differences (ours less the reference's) are the largest of five severities, "
        f"in standard errors over {found['fidelity_n']:,} images, and those of the mean change in grey levels too."
    )


def table(found: dict[str, Any]) -> str:
    metrics = [metric for metric in METRICS if metric in found["types"]["fog"]["fidelity"]["1"]]
    names = {"mean_change": "mean change", "rms_change": "RMS change", "accuracy": "accuracy"}
    titles = " | ".join(f"{names[metric]}, s.e." for metric in metrics)
    lines = [
        *textwrap.wrap(account(found), 120),
        "",
        f"| type | images/s | ratio | {titles} | grey levels |",
        "|---|---|---|" + "---|" * (len(metrics) + 1),
    ]
    for name, row in found["types"].items():
        cells = [f"{row['ours']['images_s']:,.0f}", f"{row['reference']['seconds'] / row['ours']['seconds']:,.0f}"]
        differing = max(view["differing"] for view in row["fidelity"].values())
        for metric in metrics:
            if name in NOT_RANDOM and metric != "accuracy":  # a few roundings would be many standard errors
                cells.append(f"{100 * differing:.2g} % of values differ" if differing else "equal")
            else:
                cells.append(f"{farthest(row['fidelity'], metric, 'errors'):+.1f}")
        cells.append(f"{farthest(row['fidelity'], 'mean_change', 'difference'):+.4f}" if differing else "0")
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_table(results: Path, page: Path) -> None:
    found, text = json.loads(results.read_text()), page.read_text()
    here = mark("cuda" if "peak_mb" in found["total"] else "cpu", found["pixels"])
    if text.count(here) != 2:
        raise SystemExit(f"{page} must hold two lines {here}")
    before, _, after = text.split(here)
    page.write_text(f"{before}{here}\n{table(found)}\n{here}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--reference-n", type=int, default=100, help="images that the reference is timed on")
    parser.add_argument("--fidelity-n", type=int, help="images that both are compared on (default: --reference-n)")
    parser.add_argument("--repeats", type=int, default=1, help="of ours; the best counts")
    parser.add_argument("--batch", type=int, help="images per call (default: 10,000, above 64 pixels 500)")
    parser.add_argument("--data", default="parquet:cifar10")
    parser.add_argument("--root", help="the folder of the data")
    parser.add_argument("--frost", type=Path, help="the folder of frost's overlay photographs")
    parser.add_argument("--model", help="a run folder: accuracy of its model on both")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="write the table of --output into this page, and measure nothing")
    arguments = parser.parse_args()
    if arguments.table:
        write_table(arguments.output, arguments.table)
        return
    if arguments.frost is None:
        parser.error("--frost is needed: the reference has no other overlays")
    found = measure(arguments)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
