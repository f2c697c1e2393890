"""suite=corruptions on a GPU: every pass in fp32, or coarse predictions with fp32 only where rounding could matter.

    python benchmarks/forward_suites.py --data parquet:../shared/data/cifar10 \\
        --output benchmarks/results/forward_suites.json                 # one GPU, untrained weights
    python benchmarks/forward_suites.py runs/vit runs/preact --data parquet:../shared/data/cifar10   # trained ones
    python benchmarks/forward_suites.py --quick                         # a few seconds on a CPU, to see that it works

Each MODEL is a run folder, a name of `hardtack list models`, or NAME=WEIGHTS. The images are in memory; without --data
they are random. Every way is timed from the call of `evaluate` to its return, at the first call (`first_s`: graphs are
recorded and kernels compiled) and at the best of --repeats later ones (`seconds`):

    probabilities  fp32 for every image, which also gives the probabilities that are stored by default
    fp32           confidence=false with every pass in fp32
    coarse         confidence=false as it is

`differing` counts the verdicts of the coarse way that are not those of fp32, `probabilities` those of `fp32` that are
not those of `probabilities`. `share_in_fp32` is the share of images that were computed again, `rounding` the largest
error of a lead that was measured. With untrained weights all images have similar logits, so that the share says little.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hardtack as ht
from hardtack.evaluation import measure_views, predictor
from hardtack.evaluation.predictor import CoarseCopy, Predictor
from hardtack.evaluation.target import load_run

MODELS = ("vit_tiny_patch4_32", "preact_resnet18_cifar")
WAYS = {"probabilities": (True, False), "fp32": (False, False), "coarse": (False, True)}  # confidence, coarse copies


def load(model: str) -> nn.Module:
    if Path(model).is_dir():
        return load_run(model)
    name, _, weights = model.partition("=")
    return ht.load_model(name, num_classes=10, weights=weights or None, seed=0)


def load_images(data: str | None, root: str, count: int) -> tuple[Tensor, Tensor]:
    if data is None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, 256, (count, 3, 32, 32), generator=generator).float() / 255
        return x, torch.randint(0, 10, (count,), generator=generator)
    images = ht.load_data(data, "test", root=root)
    x, y, _ = images.batch(range(min(count, len(images))))
    return x, y


def autocast_copies(model: nn.Module, runtime: ht.Runtime, probe: Tensor) -> Iterator[CoarseCopy]:
    """In place of a GPU's copies where there is none: the model itself in bf16."""

    def logits(x: Tensor) -> Tensor:
        with runtime.arithmetic("bf16"):
            return model(x).float()

    yield CoarseCopy("bf16", logits, 0.1)


class Made:
    """Keeps the predictor that an evaluation makes."""

    def __init__(self) -> None:
        self.last: Predictor | None = None
        self._make = measure_views.make_predictor

    def __call__(self, *given: Any) -> Predictor | None:
        self.last = self._make(*given)
        return self.last


def timed(model: nn.Module, images: tuple[Tensor, Tensor], device: str, *, confidence: bool) -> tuple[Any, float]:
    began = time.perf_counter()
    found = ht.evaluate(
        model, images, suite="corruptions", confidence=confidence, runtime=ht.Runtime(device=device), quiet=True
    )
    return found, time.perf_counter() - began


def differing(ours: Any, theirs: Any) -> int:
    """Verdicts that differ; clean predictions count too."""
    names = [name for name in ours.verdicts if name.startswith("correct@") or name == "clean_prediction"]
    return int(sum(np.sum(ours.verdicts[name] != theirs.verdicts[name]) for name in names))


def measure(
    model: nn.Module, images: tuple[Tensor, Tensor], device: str, *, ways: list[str], repeats: int, made: Made
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    record: dict[str, Any] = {"parameters": sum(weight.numel() for weight in model.parameters()), "ways": {}}
    for name in ways:
        confidence, coarse = WAYS[name]
        measure_views.COARSE_ON = (device,) if coarse else ()
        found[name], first = timed(model, images, device, confidence=confidence)
        seconds = [timed(model, images, device, confidence=confidence)[1] for _ in range(repeats)]
        record["ways"][name] = {"first_s": first, "seconds": min(seconds, default=first)}
        print(name, json.dumps(record["ways"][name]), flush=True)
    views = len([name for name in found["coarse"].verdicts if name.startswith("correct@")])
    record |= {"views": views, "passes": views * len(images[1]), "accuracy": found["coarse"].results[-1].value}
    record["differing"] = differing(found["coarse"], found["fp32"])
    if "probabilities" in found:
        record["differing_probabilities"] = differing(found["fp32"], found["probabilities"])
    spent = {name: way["seconds"] for name, way in record["ways"].items()}
    record |= {"times_faster": spent[ways[0]] / spent["coarse"]}
    if made.last is None:
        return record | {"copy": None}  # none was precise enough: all passes were in fp32
    counts = made.last.counts
    record |= {"copy": made.last.coarse.name, "rounding": made.last.rounding, "bound": made.last.bound}
    return record | {"share_in_fp32": counts.exact / counts.images, "passes_in_fp32": counts.exact}


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    reads.add_argument("--data", help="as data=… of the command; random images without it")
    reads.add_argument("--root", default="data", help="where named data sets lie")
    reads.add_argument("-n", type=int, default=10_000, help="the first images of the test set")
    reads.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), help="fp32 and coarse at least")
    reads.add_argument("--repeats", type=int, default=2)
    reads.add_argument("--quick", action="store_true", help="few random images and a small model, on any device")
    reads.add_argument("--output", type=Path)
    given = reads.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        if not given.quick:
            raise SystemExit("this benchmark compares arithmetics of a GPU, and torch sees none; --quick runs anywhere")
        predictor.coarse_copies = autocast_copies  # type: ignore[assignment]
    if given.quick:
        given.models, given.n, given.repeats = ["vit_digits"], 64, 0
    made = Made()
    measure_views.make_predictor = made  # type: ignore[assignment]
    images = load_images(given.data, given.root, given.n)
    options = [word for word in sys.argv[1:] if given.output is None or str(given.output) not in word]
    options = [word for word in options if word != "--output"]
    record: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/forward_suites.py", *options]),
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU",
        "torch": torch.__version__, "data": given.data or "random images", "n": len(images[1]), "models": {},
    }  # fmt: skip
    for name in given.models:
        print(name, flush=True)
        made.last = None
        record["models"][name] = measure(load(name), images, device, ways=given.ways, repeats=given.repeats, made=made)
    print(json.dumps(record, indent=1))
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
