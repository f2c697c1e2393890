"""Runs every benchmark that this machine can run, one after the other: `make bench`.

    python benchmarks/run.py                          # results lie in build/benchmarks, those of the project stay
    python benchmarks/run.py latency waiting          # these only
    HARDTACK_DATA=~/data python benchmarks/run.py     # with the folder that contains cifar10/

A benchmark that fails does not stop the others. The last lines say what was left out, and why.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

HERE = Path(__file__).parent
ROOT = os.environ.get("HARDTACK_DATA", "")


class Benchmark(NamedTuple):
    """Words after `--output`, and what it needs: gpu, data, official (AutoAttack's own code), run (a trained model)."""

    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


ON_GPU, WITH_DATA = ("gpu",), ("gpu", "data")
BENCHMARKS: dict[str, Benchmark] = {
    "latency": Benchmark(("--root", ROOT), WITH_DATA) if torch.cuda.is_available() else Benchmark(("--small",)),
    "waiting": Benchmark(),
    "data_memory": Benchmark(),
    "cpu_passes": Benchmark(),
    "cpu_training": Benchmark(),
    "cpu_engine": Benchmark((), ("official", "run")),
    "scale": Benchmark(),
    "adversarial_training": Benchmark(("--plain",), ON_GPU),
    "forward_suites": Benchmark(("--data", f"parquet:{ROOT}/cifar10"), WITH_DATA),
    "grouped_convolution": Benchmark((), ON_GPU),
    "jacobian": Benchmark((), ON_GPU),
    "models": Benchmark((), ON_GPU),
    "objectives": Benchmark((), ON_GPU),
    "occluder": Benchmark(),
    "spectra": Benchmark(),
    "corruptions": Benchmark(("--root", ROOT), WITH_DATA),
    "audit_cost": Benchmark(("--root", ROOT), WITH_DATA),
    "false_alarms": Benchmark(("--root", ROOT), WITH_DATA),
    "shared_gpu": Benchmark(("--root", ROOT), WITH_DATA),
    "attack_engine": Benchmark((), (*WITH_DATA, "official", "run")),
    "official_seeds": Benchmark((), ("official", "run")),
    "study_costs": Benchmark(("plan",)),
    "leaderboard": Benchmark(),
    "plans": Benchmark(("--root", ROOT), WITH_DATA) if torch.cuda.is_available() else Benchmark(("--small",)),
}
# of other benchmarks, the studies', and this one
PARTS = ("corruptions_reference", "scale_timed", "evidence", "evidence_session", "run")


def missing(needs: tuple[str, ...]) -> str:
    """What this machine lacks, in words; empty where it lacks nothing."""
    there = {
        "gpu": torch.cuda.is_available(), "data": bool(ROOT), "run": False,
        "official": importlib.util.find_spec("autoattack") is not None,
    }  # fmt: skip
    words = {
        "gpu": "a GPU", "data": "HARDTACK_DATA", "run": "the folder of a trained model: see its first lines",
        "official": "the official AutoAttack",
    }  # fmt: skip
    return ", ".join(words[need] for need in needs if not there[need])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"))
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    said, failed = [], False
    for name, benchmark in BENCHMARKS.items():
        if options.names and name not in options.names:
            continue
        if lack := missing(benchmark.needs):
            said.append(f"{name}: left out, needs {lack}")
            continue
        print(f"--- {name}", flush=True)
        began = time.monotonic()
        words = [*benchmark.words, "--output", str(options.output / f"{name}.json")]
        code = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *words]).returncode
        failed |= code != 0
        said.append(f"{name}: {'done' if code == 0 else 'FAILED'}, {time.monotonic() - began:.0f} s")
    print("\n".join(["", *said]))
    sys.exit(failed)


if __name__ == "__main__":
    main()
