"""PGD-10 adversarial training: how close the trainer comes to the hardware, and how far it leaves a plain loop behind.

    python benchmarks/adversarial_training.py --output benchmarks/results/adversarial_training.json

Three numbers per model, all from this run: (ours) images/s of `Trainer.step`, augmentation, attack and update
included; (a) a plain eager fp32 loop of the same computation; (b) the ceiling 1/(10·t(forward+input gradient) +
t(train step)), each part measured alone in bf16 with the best of several compile modes. A machine's speed is noise,
so read the ratios.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from hardtack.base.capture import Captured
from hardtack.data import batches, load_data
from hardtack.models import load_model
from hardtack.training import Trainer, read_recipe

STEPS, EPS = 10, 8 / 255
MODELS = {"vit_tiny_patch4_32": "ViT-Ti", "vit_small_patch4_32": "ViT-S"}


def seconds(function: Callable[[], Any], *, repeats: int, warm: int) -> float:
    """Median time of a call, device work included."""
    for _ in range(warm):
        function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def make_trainer(name: str, batch: int, folder: str) -> Trainer:
    recipe = read_recipe(
        None,
        [
            f"model={name}", f"train.batch_size={batch}", "data=digits", "data.validation=0", f"output={folder}/{name}",
            "augment.flip=0.5", "augment.crop_padding=4", "runtime.precision=bf16", "optimiser.weight_decay=0.5",
            "objective.name=adversarial", "objective.attack.name=pgd", "objective.attack.threat=linf:8/255",
            f"objective.attack.steps={STEPS}", "train.ema=0.999", "train.clip=1.0",
        ],
    )  # fmt: skip
    trainer = Trainer(recipe, load_model(name, seed=0), load_data(recipe.data, "train"), quiet=True)
    trainer.accelerate()
    return trainer


def ours(name: str, batch: int, repeats: int) -> float:
    """Images/s of the trainer's whole step."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, batch, folder)
        data = next(batches(trainer.data, batch, device=trainer.device, shuffle_seed=0))
        return batch / seconds(lambda: trainer.step(data), repeats=repeats, warm=8)


def plain_loop(name: str, batch: int, repeats: int) -> float:
    """Images/s of PGD-10 adversarial training as a tutorial writes it: eager, fp32."""
    model = load_model(name, seed=0).cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.rand(batch, 3, 32, 32, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")

    def step() -> None:
        model.eval()
        x_adv = (x + torch.empty_like(x).uniform_(-EPS, EPS)).clamp(0, 1)
        for _ in range(STEPS):
            x_adv.requires_grad_()
            loss = F.cross_entropy(model(x_adv), y)
            gradient = torch.autograd.grad(loss, x_adv)[0]
            x_adv = x_adv.detach() + EPS / 4 * gradient.sign()
            x_adv = torch.min(torch.max(x_adv, x - EPS), x + EPS).clamp(0, 1)
        model.train()
        optimiser.zero_grad()
        F.cross_entropy(model(x_adv), y).backward()
        optimiser.step()

    return batch / seconds(step, repeats=repeats, warm=2)


def ceiling(name: str, batch: int, repeats: int, gradient_modes: list[str], train_modes: list[str]) -> dict[str, Any]:
    """The two parts of a step, each alone and as fast as the compiler makes it."""
    x, y = torch.rand(batch, 3, 32, 32, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")

    def fresh_loss() -> tuple[Any, Callable[[torch.Tensor], torch.Tensor]]:
        torch._dynamo.reset()
        model = load_model(name, seed=0).cuda()

        def loss(image: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return F.cross_entropy(model(image).float(), y, reduction="sum")

        return model, loss

    def gradient_seconds(mode: str) -> float:
        model, loss = fresh_loss()
        model.eval().requires_grad_(False)
        function: Callable = torch.compile(torch.func.grad(loss), mode=_compile_mode(mode), fullgraph=True)
        function = Captured(function) if mode.endswith("+graph") else function
        return seconds(lambda: function(x), repeats=repeats, warm=6)

    def train_seconds(mode: str) -> float:
        model, loss = fresh_loss()
        model.train()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        forward = torch.compile(loss, mode=_compile_mode(mode), fullgraph=True)

        def step() -> None:
            (forward(x) / batch).backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

        return seconds(step, repeats=repeats, warm=6)

    gradient_s = {mode: gradient_seconds(mode) for mode in gradient_modes}
    train_s = {mode: train_seconds(mode) for mode in train_modes}
    best = STEPS * min(gradient_s.values()) + min(train_s.values())
    return {"images_per_s": batch / best, "forward_input_gradient_s": gradient_s, "train_step_s": train_s}


def _compile_mode(mode: str) -> str | None:
    return None if mode.startswith("default") else mode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--gradient-modes", nargs="+", default=["default+graph", "reduce-overhead"])
    parser.add_argument("--train-modes", nargs="+", default=["default", "reduce-overhead"])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device; nothing was measured")

    rows = []
    for name in options.models:
        torch._dynamo.reset()
        rate = ours(name, options.batch, options.repeats)
        print(f"{name} ours {rate:,.0f} img/s", flush=True)
        eager = plain_loop(name, options.batch, max(3, options.repeats // 3))
        print(f"{name} eager fp32 {eager:,.0f} img/s", flush=True)
        top = ceiling(name, options.batch, options.repeats, options.gradient_modes, options.train_modes)
        print(f"{name} ceiling {top['images_per_s']:,.0f} img/s {top}", flush=True)
        rows.append(
            {
                "model": name, "batch": options.batch, "ours_images_per_s": rate, "eager_fp32_images_per_s": eager,
                "ceiling": top, "times_eager": rate / eager, "share_of_ceiling": rate / top["images_per_s"],
            }
        )  # fmt: skip
        print(f"{name}: {rate / eager:.2f} × eager, {rate / top['images_per_s']:.2f} of the ceiling", flush=True)
    facts = {
        "command": "python " + " ".join(sys.argv), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "date": datetime.date.today().isoformat(), "rows": rows,
    }  # fmt: skip
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
