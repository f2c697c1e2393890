"""AutoAttack on a CPU, official and ours: the same model, the same images, the same threads, one process.

    hardtack train digits/trades
    PYTHONPATH=~/auto-attack python benchmarks/cpu_engine.py runs/trades --threat linf:0.1 -n 64 \\
        --output benchmarks/results/cpu_engine_vit.json

The official implementation takes part where it can be imported (its repository on the path). Each implementation is
timed from its call to its return, by the clock (`times`) and by the processor (`cpu_times`, which other programs on the
machine hardly change); the record has all turns and their median. With `--passes`, a further turn counts `passes`:
forwards and backwards of images through the model.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hardtack as ht
from hardtack.base.config import build
from hardtack.data import batches
from hardtack.evaluation.target import TargetConfig, complete, load_target
from hardtack.threats import Threat

NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def timed(function: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    began, busy = time.perf_counter(), time.process_time()
    result = function()
    return result, {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}


@contextlib.contextmanager
def counted(model: nn.Module) -> Iterator[dict[str, int]]:
    """Images that pass through the model forwards and backwards."""
    passes = {"forwards": 0, "backwards": 0, "calls": 0}

    def count(module: nn.Module, given: Any, out: Tensor) -> None:
        passes["forwards"] += len(out)
        passes["calls"] += 1
        if out.requires_grad:
            out.register_hook(lambda gradient: passes.update(backwards=passes["backwards"] + len(gradient)))

    handle = model.register_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()


def official(model: nn.Module, x: Tensor, y: Tensor, threat: Threat) -> Callable[[], np.ndarray]:
    """Robust or not, image by image, by the official implementation."""
    from autoattack import AutoAttack

    def run() -> np.ndarray:
        adversary = AutoAttack(
            model, norm=NORMS[threat.norm], eps=threat.radius, version="standard", device="cpu", seed=0, verbose=False
        )
        x_adv = adversary.run_standard_evaluation(x, y, bs=len(x))
        with torch.no_grad():
            robust: np.ndarray = (model(x_adv).argmax(dim=1) == y).numpy()
            return robust

    return run


def ours(model: nn.Module, x: Tensor, y: Tensor, threat: Threat, tier: str, audit: bool) -> Callable[[], np.ndarray]:
    extra = {} if audit else {"audit": 0}

    def run() -> np.ndarray:
        measured = ht.evaluate(
            model, (x, y), suite="autoattack", threat=threat, tier=tier, quiet=True,
            runtime=ht.Runtime(device="cpu"), **extra,
        )  # fmt: skip
        return measured.robust

    return run


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    threat = Threat.parse(arguments.threat)
    data = {"root": arguments.root} if arguments.root else {}
    values = complete(arguments.run, {"n": arguments.n, **({"data": data} if data else {})})
    target = load_target(arguments.run, build(TargetConfig, values))
    model = target.model.cpu().eval().requires_grad_(False)
    batch = next(batches(target.data, arguments.n, device="cpu"))
    x, y = batch.x, batch.y
    record: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/cpu_engine.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "device": processor(), "cores": os.cpu_count(),
        "threads": torch.get_num_threads(), "torch": torch.__version__, "model": target.provenance.model,
        "n": len(y), "threat": str(threat),
    }  # fmt: skip
    ways: dict[str, Callable[[], np.ndarray]] = {}
    if arguments.official:
        ways["official"] = official(model, x, y, threat)
    for tier in arguments.tiers.split(","):
        ways[tier] = ours(model, x, y, threat, tier, audit=True)
        ways[f"{tier}, audit=0"] = ours(model, x, y, threat, tier, audit=False)
    verdicts: dict[str, np.ndarray] = {}
    found: dict[str, dict[str, Any]] = {way: {"turns": []} for way in ways}
    for turn in range(arguments.turns):
        for way, run in ways.items():
            verdicts[way], seconds = timed(run)
            found[way]["turns"].append(seconds)
            print(turn, way, f"{verdicts[way].mean():.4f}", json.dumps(seconds), flush=True)
    for way in ways if arguments.passes else []:
        with counted(model) as passes:
            ways[way]()
        found[way]["passes"] = dict(passes)
    for way, facts in found.items():
        facts["robust_accuracy"] = float(verdicts[way].mean())
        for name in ("seconds", "cpu_seconds"):
            facts[name] = statistics.median(turn[name] for turn in facts["turns"])
        if "official" in found and way != "official":
            pairs = list(zip(found["official"]["turns"], facts["turns"], strict=True))
            for times, name in (("times", "seconds"), ("cpu_times", "cpu_seconds")):
                facts[times] = statistics.median(one[name] / other[name] for one, other in pairs)
            facts["agreement"] = float((verdicts["official"] == verdicts[way]).mean())
    return record | {"clean_accuracy": float((model(x).argmax(dim=1) == y).float().mean()), "ways": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--threat", default="linf:0.1")
    parser.add_argument("-n", type=int, default=64, help="the first images of the test set")
    parser.add_argument("--root", help="where the data lies")
    parser.add_argument("--tiers", default="fast,verified")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--official", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--passes", action="store_true", help="also count passes, in a further turn")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    record = measure(arguments)
    print(json.dumps(record, indent=1))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
