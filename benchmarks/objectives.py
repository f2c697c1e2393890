"""How fast each objective trains, as a share of what its passes alone would allow; and what RSPC costs.

    python benchmarks/objectives.py                                # on a GPU; writes benchmarks/results/objectives.json
    python benchmarks/objectives.py --table docs/train.md          # writes the table from the results

Images/s of `Trainer.step` (augmentation, attack, update, occluder) in bf16, compiled and replayed as graphs. The
ceiling adds up the passes that the objective cannot do without, each measured by itself, compiled and replayed:

    update    forward, backward to the weights and AdamW, on the batch; `doubled` on twice as many images
    gradient  forward and backward to the images, eval mode
    forward   eval mode, no gradients

SAM and AWP take two updates, RSPC a doubled one, PGD-3 three gradients and an update, TRADES a forward more and a
doubled update. One process for each objective and model, as in models.py: they compile beside each other, and each
measures alone. What --output holds already is not measured again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from models import Workers

from hardtack.base.capture import Captured
from hardtack.data import batches, load_data
from hardtack.models import load_model
from hardtack.training import Trainer, read_recipe

BATCH = 512
MARK = "<!-- written by benchmarks/objectives.py -->"
PGD = ["objective.attack.name=pgd", "objective.attack.threat=linf:8/255", "objective.attack.steps=3"]
# words of a recipe, and the passes that the objective needs
OBJECTIVES: dict[str, tuple[list[str], dict[str, int]]] = {
    "standard": (["objective=standard"], {"update": 1}),
    "free": (["objective=free"], {"update": 1}),
    "sam": (["objective=standard", "sharpness=sam"], {"update": 2}),
    "awp": (["objective=standard", "sharpness=awp"], {"update": 2}),
    "rspc": (["objective=rspc"], {"doubled": 1}),
    "rspc random": (["objective=rspc", "objective.choose=random"], {"doubled": 1}),
    "fgsm": (["objective=adversarial", "objective.attack.name=rfgsm", PGD[1]], {"gradient": 1, "update": 1}),
    "pgd-3": (["objective=adversarial", *PGD], {"gradient": 3, "update": 1}),
    "trades": (["objective=trades", *PGD], {"forward": 1, "gradient": 3, "doubled": 1}),
    "mart": (["objective=mart", *PGD], {"gradient": 3, "doubled": 1}),
    "alp": (["objective=alp", *PGD], {"gradient": 3, "doubled": 1}),
}
PARTS = ("update", "doubled", "attack parts")
MODELS = {
    "vit_tiny_patch4_32": (*OBJECTIVES, *PARTS),
    "rvt_tiny_plus_32": ("standard", "rspc", "rspc random", "update", "doubled"),
}


def seconds(step: Callable[[], Any], *, groups: int = 5, steps: int = 10) -> float:
    """Of one step, as steps follow each other: the median of a few groups."""
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(groups):
        began = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / steps)
    return statistics.median(times)


# ---------------------------------------------------------------- one objective of one model, in a process of its own


def trainer_seconds(model: str, objective: str, alone: Callable[[], None]) -> dict[str, float]:
    words = [
        f"model={model}", f"train.batch_size={BATCH}", "data=digits", "data.validation=0", "augment.flip=0.5",
        "augment.crop_padding=4", "runtime.precision=bf16", "runtime.compile=true", "train.clip=1.0",
        *OBJECTIVES[objective][0],
        "objective.label_smoothing=0.1",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        recipe = read_recipe(None, [*words, f"output={folder}/run"])
        trainer = Trainer(recipe, load_model(model, seed=0), load_data(recipe.data, "train"), quiet=True)
        trainer.accelerate()
        batch = next(batches(trainer.data, BATCH, device=trainer.device, shuffle_seed=0))
        for _ in range(8):  # compiled, recorded
            trainer.step(batch)
        alone()
        found = {"step_s": seconds(lambda: trainer.step(batch))}
        if objective == "rspc":
            found["occluder_s"] = occluder_seconds(trainer, batch.x)
        return found


def occluder_seconds(trainer: Trainer, x: torch.Tensor) -> float:
    """Of the kernels that the occluder's part of a step runs, uncompiled: masks, their gradient, its own update."""
    opponent = trainer.objective.opponent
    weights = list(opponent.parameters())
    towards = torch.randn_like(opponent(x).detach())

    def whole() -> None:
        for parameter, gradient in zip(weights, torch.autograd.grad(opponent(x), weights, towards), strict=True):
            parameter.grad = gradient
        opponent.step()
        torch.cuda.synchronize()

    whole()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        whole()
    return sum(event.self_device_time_total for event in profile.key_averages()) / 1e6


def part_seconds(model: str, part: str, alone: Callable[[], None]) -> dict[str, float]:
    network = load_model(model, seed=0).cuda().to(memory_format=torch.channels_last)
    images = BATCH * (2 if part == "doubled" else 1)
    x, y = torch.rand(images, 3, 32, 32, device="cuda"), torch.randint(0, 10, (images,), device="cuda")

    def loss(image: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(network(image).float(), y, reduction="sum")

    if part == "attack parts":
        network.eval().requires_grad_(False)
        gradient = Captured(torch.compile(torch.func.grad(loss), fullgraph=True))
        forward = Captured(torch.no_grad()(torch.compile(loss, fullgraph=True)))
        for _ in range(6):
            gradient(x)
            forward(x)
        alone()
        return {"gradient": seconds(lambda: gradient(x)), "forward": seconds(lambda: forward(x))}

    optimiser = torch.optim.AdamW(network.train().parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(loss, mode="reduce-overhead", fullgraph=True)

    def update() -> None:
        (compiled(x) / images).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    for _ in range(6):
        update()
    alone()
    return {part: seconds(update)}


def serve(task: str) -> None:
    """What a process does: say that it is ready, wait to be alone, say what it measured."""
    model, _, name = task.partition(":")

    def alone() -> None:
        torch.cuda.synchronize()
        print("ready", flush=True)
        sys.stdin.readline()

    try:
        found: dict[str, Any] = dict((trainer_seconds if name in OBJECTIVES else part_seconds)(model, name, alone))
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    print(json.dumps(found), flush=True)


# ---------------------------------------------------------------- all of them


def measure_all(processes: int, limit_s: float, output: Path, bystanders: list[int]) -> None:
    threads = max(1, (os.cpu_count() or 1) // processes)
    workers = Workers(time.monotonic() + limit_s, threads, __file__, bystanders)
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"measured": {}}
    tasks = [f"{model}:{name}" for model, names in MODELS.items() for name in names]
    tasks = [task for task in tasks if found["measured"].get(task, {"error": None}).keys() == {"error"}]
    found |= {
        "command": "python benchmarks/objectives.py", "device": torch.cuda.get_device_name(), "batch": BATCH,
        "torch": torch.__version__, "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        for task, row in zip(tasks, pool.map(workers.measure, tasks), strict=True):
            print(task, "not measured" if row is None else json.dumps(row), flush=True)
            found["measured"][task] = row or {"error": "not measured"}
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(found, indent=1) + "\n")


def table(results: dict[str, Any]) -> str:
    lines = ["| model | objective | images/s | ceiling | share |", "|---|---|---|---|---|"]
    measured = results["measured"]
    for model, names in MODELS.items():
        parts: dict[str, float] = {}
        for name in PARTS:
            parts |= measured.get(f"{model}:{name}") or {}
        for name in (one for one in names if one in OBJECTIVES):
            step = (measured.get(f"{model}:{name}") or {}).get("step_s")
            needs = OBJECTIVES[name][1]
            if step is None or not needs.keys() <= parts.keys():
                continue
            ceiling = sum(count * parts[part] for part, count in needs.items())
            passes = " + ".join(part if count == 1 else f"{count} {part}s" for part, count in needs.items())
            rates = f"{BATCH / step:,.0f} | {BATCH / ceiling:,.0f} ({passes})"
            lines.append(f"| `{model}` | {name} | {rates} | {ceiling / step:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes at a time")
    parser.add_argument("--limit-s", type=float, default=1800.0, help="what it cuts off is said")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/objectives.json"))
    parser.add_argument("--table", type=Path, help="write the table of --output into this page, and measure nothing")
    parser.add_argument(
        "--bystanders", type=int, nargs="*", default=[], help="process groups that then stand still too"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        serve(options.one)
    elif options.table:
        before, _, rest = options.table.read_text().partition(MARK)
        text = table(json.loads(options.output.read_text()))
        options.table.write_text(f"{before}{MARK}\n{text}\n{MARK}{rest.partition(MARK)[2]}")
    else:
        measure_all(options.workers, options.limit_s, options.output, options.bystanders)


if __name__ == "__main__":
    main()
