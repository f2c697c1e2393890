"""How threads that wait for each other bear company: steps a second of a small network, as the command sets it and not.

    python benchmarks/waiting.py --output benchmarks/results/waiting.json      # on a CPU, with nothing else running

`spinning` is what torch's OpenMP does by itself, `asleep` what the command `hardtack` asks for (GOMP_SPINCOUNT=2000;
hardtack.commands.cli), each alone and beside processes that each keep a core busy, in turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

WAYS: dict[str, dict[str, str]] = {"spinning": {}, "asleep": {"GOMP_SPINCOUNT": "2000"}}
STEPS = """
import time, torch
torch.set_num_threads({threads})
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.LayerNorm(64))
x = torch.randn(64 * 17, 64, generator=torch.Generator().manual_seed(0))
steps, until = 0, None
while until is None or time.monotonic() < until:
    net(x).square().mean().backward()
    steps += 1
    if until is None and steps == 20:
        steps, until = 0, time.monotonic() + {seconds}
print(steps / {seconds})
"""


def measure(way: str, threads: int, seconds: float) -> float:
    """Steps a second, in a process of its own."""
    free = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    code = STEPS.format(threads=threads, seconds=seconds)
    done = subprocess.run(
        [sys.executable, "-c", code], env=free | WAYS[way], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--threads", type=int, default=os.cpu_count())
    reads.add_argument("--seconds", type=float, default=2.0)
    reads.add_argument("--turns", type=int, default=5)
    reads.add_argument("--busy", type=int, nargs="*", default=[0, 1, 2, 4], help="processes beside it")
    reads.add_argument("--output", type=Path)
    given = reads.parse_args()
    record: dict[str, Any] = {
        "command": "python benchmarks/waiting.py", "date": datetime.date.today().isoformat(), "device": "CPU",
        "cores": os.cpu_count(), "threads": given.threads, "seconds": given.seconds, "turns": given.turns,
        "beside": [],
    }  # fmt: skip
    for company in given.busy:
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(company)]
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        try:
            for _ in range(given.turns):
                for way, rates in found.items():
                    rates.append(round(measure(way, given.threads, given.seconds), 1))
        finally:
            for process in busy:
                process.kill()
        medians = {way: statistics.median(rates) for way, rates in found.items()}
        record["beside"].append({"busy_processes": company, "median": medians, "steps_per_s": found})
    text = json.dumps(record, indent=1) + "\n"
    print(text)
    if given.output:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
