"""Steps of training on a GPU: as they are by default, with compiled blocks, wholly compiled, and as a plain loop.

    python benchmarks/adversarial_training.py --output benchmarks/results/adversarial_training.json

Images/s of `Trainer.step`, with augmentation, attack, update and everything else, in bf16:

    graphs    the default: CUDA graphs with our kernels, nothing is compiled
    blocks    the same with the model's repeated blocks through torch.compile, to which long runs turn by themselves
    compiled  runtime.compile=true: the attack's step and the whole update through torch.compile
    plain     eager fp32, as a tutorial writes PGD training (--plain, and only where there is an attack)

`parts` are the attack and the gradient of the update, timed alone: what the rest of a step costs is the difference.
`ready_s` is from the start of the process to the end of the tenth step. Every case is a process of its own; all prepare
side by side and are then timed one after the other. A machine's speed is noise, so read the ratios.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from hardtack.data import batches, load_data
from hardtack.models import load_model
from hardtack.training import Trainer, read_recipe
from hardtack.training.later_compilation import with_compiled_blocks

EPS = 8 / 255
SHARED = ["data=digits", "data.validation=0", "augment.flip=0.5", "augment.crop_padding=4", "runtime.precision=bf16"]
PGD = [
    "objective.name=adversarial",
    "objective.attack.name=pgd",
    "objective.attack.threat=linf:8/255",
    "train.clip=1.0",
]
CASES: dict[str, list[str]] = {
    "ViT-Ti/4, PGD-10": ["model=vit_tiny_patch4_32", *PGD, "objective.attack.steps=10", "train.ema=0.999"],
    "ViT-S/4, PGD-10": ["model=vit_small_patch4_32", *PGD, "objective.attack.steps=10", "train.ema=0.999"],
    "XCiT-N12/4, PGD-3": ["model=xcit_nano_12_patch4_32", *PGD, "objective.attack.steps=3"],
    "PreActResNet-18, PGD-3": ["model=preact_resnet18_cifar", *PGD, "objective.attack.steps=3"],
    "RVT-Ti*, RSPC": ["model=rvt_tiny_plus_32", "objective=rspc", "objective.weight=0.05", "train.clip=1.0"],
    "ViT-T1, SAM": ["model=cauchy_vit_t1_32", "optimiser.name=sgd", "optimiser.lr=0.01", "sharpness=sam"],
}
WAYS = {"graphs": "null", "blocks": "null", "compiled": "true"}
STEPS = 30


def seconds(function: Callable[[], Any], *, repeats: int = 10) -> float:
    """Median time of a call, device work included."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def make_trainer(case: str, way: str, batch: int, folder: Path) -> Trainer:
    words = [*CASES[case], *SHARED, f"runtime.compile={WAYS[way]}", f"train.batch_size={batch}", f"output={folder}/run"]
    recipe = read_recipe(None, words)
    trainer = Trainer(recipe, load_model(recipe.model.name, seed=0), load_data(recipe.data, "train"), quiet=True)
    trainer.accelerate()
    if way == "blocks":
        trainer.gradient = with_compiled_blocks(trainer.objective, trainer.runtime, trainer.config)
        if trainer.objective.adversary is not None:
            trainer.objective.adversary.compile_blocks(trainer.runtime)
    return trainer


def work(case: str, way: str, batch: int, folder: Path) -> None:
    """Prepare, say so, wait for the turn, measure."""
    began = time.time()
    trainer = make_trainer(case, way, batch, folder)
    data = next(batches(trainer.data, batch, device=trainer.device, shuffle_seed=0))
    losses = [float(trainer.step(data)["loss"]) for _ in range(10)]
    found: dict[str, Any] = {"ready_s": round(time.time() - began, 1), "losses": [round(loss, 4) for loss in losses]}
    Path(folder, "ready").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)

    def steps() -> None:
        for _ in range(STEPS):
            trainer.step(data)

    found["images_per_s"] = round(batch * STEPS / seconds(steps, repeats=3))
    x, y, keys = trainer.augmented(*data, torch.full((), 0, device=trainer.device))

    def prepare() -> dict[str, Any]:
        with trainer.runtime.arithmetic():
            return trainer.objective.prepare(x, y, keys=keys, epoch=1.0)

    prepared = {name: value.clone() for name, value in prepare().items()}

    def update() -> None:
        trainer.gradient(x, y, prepared, last=True)
        trainer.objective.zero_grad(set_to_none=True)

    for _ in range(5):  # graphs that were recorded for the step fit these inputs, too
        update()
    found["parts_ms"] = {"attack": round(seconds(prepare) * 1e3, 2), "gradient": round(seconds(update) * 1e3, 2)}
    found["memory_mb"] = round(torch.cuda.max_memory_allocated() / 2**20)
    Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")


def plain_loop(case: str, batch: int) -> float:
    """Images/s of PGD adversarial training as a tutorial writes it: eager, fp32."""
    recipe = read_recipe(None, [*CASES[case], "output=unused"])
    model = load_model(recipe.model.name, seed=0).cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.rand(batch, 3, 32, 32, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")

    def step() -> None:
        model.eval()
        x_adv = (x + torch.empty_like(x).uniform_(-EPS, EPS)).clamp(0, 1)
        for _ in range(recipe.objective.attack.steps):
            x_adv.requires_grad_()
            loss = F.cross_entropy(model(x_adv), y)
            gradient = torch.autograd.grad(loss, x_adv)[0]
            x_adv = x_adv.detach() + EPS / 4 * gradient.sign()
            x_adv = torch.min(torch.max(x_adv, x - EPS), x + EPS).clamp(0, 1)
        model.train()
        optimiser.zero_grad()
        F.cross_entropy(model(x_adv), y).backward()
        optimiser.step()

    step()
    return batch / seconds(step, repeats=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="CASE")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--skip", nargs="+", default=[], metavar="CASE:WAY")
    parser.add_argument("--plain", action="store_true", help="also the plain loop")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device; nothing was measured")
    if options.work:
        case, way, folder = options.work
        work(case, way, options.batch, Path(folder))
        return
    jobs = [(case, way) for case in options.cases for way in options.ways if f"{case}:{way}" not in options.skip]
    measured = _measure(jobs, options.batch)
    for case in options.cases if options.plain else []:
        if "objective.name=adversarial" in CASES[case]:
            measured[case]["plain"] = {"images_per_s": round(plain_loop(case, options.batch))}
            print(case, "plain", measured[case]["plain"], flush=True)
    record = {
        "command": shlex.join(["python", *sys.argv]), "device": torch.cuda.get_device_name(),
        "torch": torch.__version__, "date": datetime.date.today().isoformat(), "batch": options.batch,
        "measured": measured,
    }  # fmt: skip
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _measure(jobs: list[tuple[str, str]], batch: int) -> dict[str, dict[str, Any]]:
    measured: dict[str, dict[str, Any]] = {case: {} for case, _ in jobs}
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4", "OMP_NUM_THREADS": "2"}
    with tempfile.TemporaryDirectory() as root:
        places = [Path(root, str(number)) for number in range(len(jobs))]
        processes = []
        for (case, way), place in zip(jobs, places, strict=True):
            place.mkdir()
            words = [sys.executable, __file__, "--batch", str(batch), "--work", case, way, str(place)]
            processes.append(subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True))
        for process, place in zip(processes, places, strict=True):
            while process.poll() is None and not (place / "ready").exists():
                time.sleep(0.1)
        for (case, way), process, place in zip(jobs, processes, places, strict=True):
            (place / "go").touch()
            _, said = process.communicate()
            if process.returncode:
                sys.exit(f"{case}, {way} failed:\n{said[-2000:]}")
            measured[case][way] = json.loads((place / "found.json").read_text(encoding="utf-8"))
            print(case, way, {k: v for k, v in measured[case][way].items() if k != "losses"}, flush=True)
    return measured


if __name__ == "__main__":
    main()
