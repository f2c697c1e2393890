"""How fast training runs on a CPU, as a share of what its passes alone would allow.

    python benchmarks/cpu_training.py --output benchmarks/results/cpu_training.json

Images per second of `Trainer.step` (augmentation, attack, update) on the bundled digits, and of the passes that the
objective cannot do without, each measured by itself in plain torch in the same process, in turns with the trainer:

    update    forward, backward to the weights and AdamW, on the batch; `doubled` on twice as many images
    gradient  forward and backward to the images, eval mode
    forward   eval mode, no gradients
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from cpu_engine import processor
from objectives import OBJECTIVES
from torch import nn

from hardtack.base.allocator import keep_freed_memory
from hardtack.data import batches, load_data
from hardtack.models import load_model
from hardtack.training import Trainer, read_recipe

BATCH, SIDE = 64, 32
NAMES = ("standard", "pgd-3", "trades", "rspc", "sam")
MODELS = ("vit_digits", "preact_resnet18_cifar")


def make_trainer(model: str, objective: str, folder: str) -> Trainer:
    words = [
        f"model={model}", f"train.batch_size={BATCH}", "data=digits", "data.validation=0", "augment.crop_padding=4",
        *OBJECTIVES[objective][0], f"output={folder}/run", "runtime.device=cpu",
    ]  # fmt: skip
    recipe = read_recipe(None, words)
    trainer = Trainer(recipe, load_model(model, seed=0, image_size=SIDE), load_data(recipe.data, "train"), quiet=True)
    trainer.accelerate()
    return trainer


def make_passes(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, Callable[[], Any]]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def update(images: torch.Tensor, labels: torch.Tensor) -> None:
        model.train()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    def gradient() -> None:
        model.eval().requires_grad_(False)
        image = x.clone().requires_grad_()
        torch.autograd.grad(F.cross_entropy(model(image), y), image)
        model.requires_grad_(True)

    def forward() -> None:
        with torch.no_grad():
            model.eval()(x)

    twice, labels = torch.cat([x, x]), torch.cat([y, y])
    return {"update": lambda: update(x, y), "doubled": lambda: update(twice, labels),
            "gradient": gradient, "forward": forward}  # fmt: skip


def once(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measure(model: str, objective: str, turns: int) -> dict[str, Any]:
    """Medians over turns, in each of which the step and its passes follow one another."""
    needs = OBJECTIVES[objective][1]
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(model, objective, folder)
        batch = next(batches(trainer.data, BATCH, device=trainer.device, shuffle_seed=0))
        passes = make_passes(load_model(model, seed=0, image_size=SIDE), batch.x, batch.y)
        step = lambda: trainer.step(batch)  # noqa: E731
        for function in [step, step, *(passes[name] for name in needs for _ in range(2))]:
            function()
        rows = [{"step": once(step), **{name: once(passes[name]) for name in needs}} for _ in range(turns)]
    median = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    ceiling = sum(count * median[name] for name, count in needs.items())
    return {
        "images_per_s": round(BATCH / median["step"], 1), "ceiling": round(BATCH / ceiling, 1),
        "share": round(ceiling / median["step"], 3), "passes": needs,
        "seconds": {name: round(value, 4) for name, value in median.items()},
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=NAMES)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(words)
    keep_freed_memory()  # for the passes alone, too
    measured: dict[str, Any] = {}
    for model in options.models:
        for objective in options.objectives:
            measured[f"{model}: {objective}"] = found = measure(model, objective, options.turns)
            print(model, objective, json.dumps(found), flush=True)
    record = {
        "command": " ".join(["python", "benchmarks/cpu_training.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "device": processor(), "cores": os.cpu_count(), "batch": BATCH,
        "threads": torch.get_num_threads(), "torch": torch.__version__, "measured": measured,
    }  # fmt: skip
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
