"""What a pass of a small model costs on a CPU, and what each of the means that make it faster contributes.

    python benchmarks/cpu_passes.py --output benchmarks/results/cpu_passes.json

Ways, each in a process of its own: `torch`, the model as torch runs it; `kept`, the same with freed memory kept for the
next pass (base/allocator.py); `packed`, the copy that searches in fp32 use (models/cpu_layers.py), with memory kept;
`bf16`, the copy that searches in bf16 use. Images per second of a forward pass and of a pass with the gradient to the
images; the processes take turns, and each number is the median of their turns. Models have random weights.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cpu_engine import processor
from torch import nn

import hardtack as ht
from hardtack.attacks.pool.fast_copy import FastCopy, fast_copy
from hardtack.base.allocator import keep_freed_memory
from hardtack.models import cpu_layers

MODELS = {"vit_digits": 128, "vit_tiny_patch4_32": 128, "preact_resnet18_cifar": 128, "deit_tiny_patch16_224": 16}
WAYS = ("torch", "kept", "packed", "bf16")
SECONDS = 2.0  # of one turn


def prepared(name: str, way: str, x: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = ht.load_model(name, num_classes=10).eval().requires_grad_(False)
    if way != "torch":
        keep_freed_memory()
    if way in ("torch", "kept"):
        return model
    runtime = ht.Runtime(device="cpu")
    copy = fast_copy(model, runtime, torch.bfloat16 if way == "bf16" else None, x[:8])
    if not isinstance(copy, FastCopy):
        sys.exit(f"{name} cannot be copied")
    return copy


def rate(step: Callable[[], Any], images: int) -> float:
    """Images per second."""
    step()
    began, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < SECONDS:
        step()
        steps += 1
    return steps * images / passed


def child(name: str, way: str) -> None:
    batch = MODELS[name]
    side = 224 if name.endswith("224") else 32
    x = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(1))
    model = prepared(name, way, x)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def gradient() -> None:
        image = x.clone().requires_grad_()
        torch.autograd.grad(model(image).logsumexp(dim=1).sum(), image)

    print(json.dumps({"forward": rate(forward, batch), "gradient": rate(gradient, batch)}))


def measure(name: str, turns: int) -> dict[str, Any]:
    ways = [way for way in WAYS if way != "bf16" or cpu_layers.has_bf16()]
    rates: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            done = subprocess.run(
                [sys.executable, __file__, "--child", name, way], check=True, capture_output=True, text=True
            )
            rates[way].append(json.loads(done.stdout.splitlines()[-1]))
    found: dict[str, Any] = {"batch": MODELS[name]}
    for way in ways:
        found[way] = {
            kind: {
                "images_per_s": round(statistics.median(turn[kind] for turn in rates[way]), 1),
                "times_torch": round(
                    statistics.median(a[kind] / b[kind] for a, b in zip(rates[way], rates["torch"], strict=True)), 2
                ),
            }
            for kind in ("forward", "gradient")
        }
        print(name, way, json.dumps(found[way]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    measured = {name: measure(name, options.turns) for name in options.models}
    record = {
        "command": " ".join(["python", "benchmarks/cpu_passes.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "device": processor(), "cores": os.cpu_count(),
        "threads": torch.get_num_threads(), "torch": torch.__version__, "measured": measured,
    }  # fmt: skip
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
