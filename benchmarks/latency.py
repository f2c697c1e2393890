"""What a person waits for: commands in fresh processes, with empty caches and again.

    python benchmarks/latency.py --root ~/data --output benchmarks/results/latency_gpu.json      # on a GPU, CIFAR-10
    python benchmarks/latency.py --small --output benchmarks/results/latency_cpu.json            # two CPU cores, digits

`cold` has empty folders for the caches of hardtack, Triton and Inductor, `warm` those that the cold call has left; the
files of Python itself are read from the disk or from memory as they happen to be. Seconds count from the start of the
process. Of a training: `first_steps_s`, when its first five steps are logged; `full_speed_s`, when for the first time
five steps run at nine tenths of the median rate or more; and `total_s`. Of other commands: `total_s`, and `cpu_s`, the
seconds of all cores together, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

EVERY = 5  # steps between two lines of a training's log
SHORT = [
    "--help", "evaluate --help", "list attacks", "list models", "list settings trades", "describe pgd",
    "describe vit_digits", "doctor",
]  # fmt: skip


def launch(words: list[str], caches: Path, log: Path) -> subprocess.Popen:
    environment = {
        **os.environ, "HARDTACK_CACHE": str(caches / "hardtack"), "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }  # fmt: skip
    with log.open("w") as file:
        return subprocess.Popen([sys.executable, "-m", "hardtack", *words], env=environment, stdout=file, stderr=file)


def ended(process: subprocess.Popen, words: list[str], log: Path) -> None:
    if process.wait():
        sys.exit(f"hardtack {' '.join(words)} failed:\n{log.read_text()[-2000:]}")


def command(words: list[str], caches: Path, folder: Path) -> dict[str, float]:
    """A command from its start to its end."""
    used, began = _cpu_s(), time.perf_counter()
    process = launch(words, caches, folder / "log")
    ended(process, words, folder / "log")
    return {"total_s": round(time.perf_counter() - began, 2), "cpu_s": round(_cpu_s() - used, 2)}


def training(words: list[str], caches: Path, folder: Path) -> dict[str, float]:
    """A training, whose log is watched."""
    words = [*words, f"output={folder / 'run'}", f"train.log_every={EVERY}"]
    began, lines = time.perf_counter(), []
    process = launch(words, caches, folder / "log")
    metrics = folder / "run" / "metrics.jsonl"
    while True:
        over = process.poll() is not None
        whole = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        whole = [line for line in whole if line.endswith("\n")]
        now = time.perf_counter() - began
        lines += [(now, json.loads(line)) for line in whole[len(lines) :]]
        if over:
            break
        time.sleep(0.02)
    ended(process, words, folder / "log")
    rates = [(at, line["images_per_s"]) for at, line in lines if line["kind"] == "train"]
    median = statistics.median(rate for _, rate in rates)
    full = next(at for at, rate in rates if rate >= 0.9 * median)
    return {
        "first_steps_s": round(rates[0][0], 1), "full_speed_s": round(full, 1), "total_s": round(now, 1),
        "images_per_s": round(median),
    }  # fmt: skip


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cold_and_warm(measure: Any, words: list[str], caches: Path) -> dict[str, dict[str, float]]:
    found = {}
    for way in ("cold", "warm"):
        with tempfile.TemporaryDirectory() as folder:
            found[way] = measure(words, caches, Path(folder))
        print(" ".join(words[:2]), way, found[way], flush=True)
    return found


def trainings(options: argparse.Namespace) -> dict[str, list[str]]:
    """By name: the words of the trainings."""
    if options.small:
        return {"train digits/trades": ["train", "digits/trades", "train.epochs=2"]}
    data = [f"data.root={options.root.resolve()}", "train.epochs=2", "validation.every=2", "objective.warmup.epochs=0"]
    recipes = [f"cifar10/methods/{name}" for name in ("vit_pgd", "xcit_pgd", "preact_pgd")]
    found = {f"train {recipe}": ["train", recipe, *data] for recipe in recipes}
    return {name: words for name, words in found.items() if any(part in name for part in options.only)}


def evaluations(options: argparse.Namespace, run: Path) -> dict[str, list[str]]:
    threat, count = ("linf:0.1", "n=64") if options.small else ("linf:8/255", "n=1000")
    attack = ["evaluate", str(run), "suite=autoattack", "tier=fast", f"threat={threat}", count]
    return {
        "evaluate suite=autoattack tier=fast": attack,
        "evaluate suite=corruptions confidence=false": ["evaluate", str(run), "suite=corruptions", "confidence=false",
                                                        *(["n=64"] if options.small else [])],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="the folder that contains cifar10/")
    parser.add_argument("--small", action="store_true", help="digits instead of CIFAR-10")
    parser.add_argument("--only", nargs="+", default=[""], help="trainings whose names contain one of these words")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if not options.small and options.root is None:
        parser.error("give --root, or --small")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as base:
        run = Path(base, "run")
        for number, (name, words) in enumerate(trainings(options).items()):
            found[name] = cold_and_warm(training, words, Path(base, f"caches-{number}"))
        caches = Path(base, "caches")
        first = next(iter(trainings(options).values()))
        ended(launch([*first, f"output={run}"], caches, Path(base, "log")), first, Path(base, "log"))
        for name, words in evaluations(options, run).items():
            with tempfile.TemporaryDirectory() as folder:
                found[name] = {way: command(words, caches, Path(folder)) for way in ("first", "recalled")}
            print(name, found[name], flush=True)
        for words in SHORT:
            command(words.split(), caches, Path(base))  # reads the files of Python
            found[words] = command(words.split(), caches, Path(base))
            print(words, found[words], flush=True)
    record = {
        "command": "python benchmarks/latency.py " + ("--small" if options.small else "--root data"),
        "date": datetime.date.today().isoformat(), "torch": torch.__version__, "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU",
        "data": "digits" if options.small else "CIFAR-10 (JPEG)", "measured": found,
    }  # fmt: skip
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
