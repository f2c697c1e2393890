"""AutoAttack, official and ours: the same model, the same images, one process.

    hardtack train recipes/cifar10/vit_tiny_pgd_at.yaml data.root=~/data train.epochs=25 objective.warmup.epochs=5
    python benchmarks/attack_engine.py runs/vit_tiny_pgd_at --threat linf:8/255 -n 1000 --root ~/data \\
        --output benchmarks/results/attack_engine_vit_linf.json

The official implementation takes part where it can be imported (`pip install` it from its repository). Every tier is
timed from the call of `evaluate` to its return: `seconds` of a first call, in which CUDA graphs are recorded and, for
long jobs, kernels compiled, and `again_s` of a second one in the same process. `fresh_s` is the whole life of a new
process that evaluates the run from the command line, imports included. `ceiling` is what the card gives for this
network: images/s of a forward pass, and of one with an input gradient, as bf16 CUDA graphs; `pool_share` is the
pool's share of it with more than one batch of work alive.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hardtack as ht
from hardtack.attacks import APGD
from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.fast_copy import search_model
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.queue import Round
from hardtack.attacks.pool.search import PlannedAttempt
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.config import build
from hardtack.data import batches
from hardtack.evaluation.target import TargetConfig, complete, load_target
from hardtack.results import read_results, wilson
from hardtack.threats import Threat

SLOTS = 512
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    result = function()
    torch.cuda.synchronize()
    return result, time.perf_counter() - began


def official(model: nn.Module, x: Tensor, y: Tensor, threat: Threat) -> tuple[Tensor, float]:
    """Robust or not, image by image, by the official implementation, and its seconds."""
    from autoattack import AutoAttack

    adversary = AutoAttack(model, norm=NORMS[threat.norm], eps=threat.radius, version="standard", device="cuda", seed=0)
    adversary.verbose = False
    x_adv, seconds = timed(lambda: adversary.run_standard_evaluation(x, y, bs=500))
    with torch.no_grad():
        return model(x_adv).argmax(dim=1) == y, seconds


def replayed(function: Callable[[], Any]) -> float:
    """Images/s of a function of SLOTS images as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    graph.replay()
    _, seconds = timed(lambda: [graph.replay() for _ in range(50)])
    return SLOTS * 50 / seconds


def ceiling(search: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    x, y = x[:1].expand(SLOTS, -1, -1, -1).clone(), y[:1].expand(SLOTS).clone()

    @torch.no_grad()
    def forward() -> None:
        search(x)

    def gradient() -> None:
        image = x.detach().requires_grad_()
        torch.autograd.grad(nn.functional.cross_entropy(search(image), y, reduction="sum"), image)

    return {"forwards_per_s": replayed(forward), "gradients_per_s": replayed(gradient)}


def pool_share(
    search: nn.Module, verifier: Verifier, images: AttackInputs, threat: Threat, most: float
) -> dict[str, float]:
    """Gradients/s of the pool on images that stand, over the ceiling."""
    attack = APGD(threat=threat, loss="margin", schedule="cosine", steps=50)
    pool = Pool(search, verifier.runtime, SLOTS, verifier, "fp32")
    rounds = [Round(tuple(PlannedAttempt(rank, 0, 50) for rank in range(9)))]
    _, seconds = timed(lambda: pool.run(attack, images, rounds))
    rate = pool.spent.backwards / seconds
    return {"items": 9 * len(images.x), "gradients_per_s": rate, "pool_share": rate / most}


def fresh(arguments: argparse.Namespace, tier: str) -> dict[str, Any]:
    """The same evaluation in a process of its own, from the command line: its whole life, and what it found."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "hardtack", "evaluate", arguments.run, "suite=autoattack", f"tier={tier}",
            f"threat={arguments.threat}", f"n={arguments.n}", f"data.root={arguments.root}", f"output={folder}",
        ]  # fmt: skip
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        life = time.perf_counter() - began
        result = read_results(folder)[-1]
        return {
            "fresh_s": life,
            "robust_accuracy": result.value,
            "seconds": result.seconds,
            "stages_s": result.extra["seconds"],
        }


def tier_facts(measured: Any, seconds: float) -> dict[str, Any]:
    last = measured.results[-1]
    return {
        "robust_accuracy": measured.robust_accuracy, "clean_accuracy": measured.clean_accuracy, "seconds": seconds,
        "n": last.n, "stages_s": last.extra["seconds"], "broken_by": last.extra["broken_by"],
        "forwards": last.extra["forwards"], "backwards": last.extra["backwards"], "precision": last.precision,
    }  # fmt: skip


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    threat, runtime = Threat.parse(arguments.threat), ht.Runtime()
    values = complete(arguments.run, {"data": {"root": arguments.root}, "n": arguments.n})
    target = load_target(arguments.run, build(TargetConfig, values))
    model = target.model.cuda().eval().requires_grad_(False)
    batch = next(batches(target.data, arguments.n, device="cuda"))
    x, y = batch.x, batch.y
    found: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/attack_engine.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "model": target.provenance.model, "data": target.data.description, "n": len(y), "threat": str(threat),
    }  # fmt: skip
    say = lambda **facts: (found.update(facts), print(json.dumps(facts), flush=True))  # noqa: E731
    with preserve_state(model):
        search = search_model(model, runtime, "bf16", x[:8]).model
        say(ceiling=ceiling(search, x, y))
    tiers: dict[str, Any] = {}
    reference = None
    if arguments.official:
        reference, seconds = official(model, x, y, threat)
        low, high = wilson(int(reference.sum()), len(y))
        say(official={"robust_accuracy": reference.float().mean().item(), "low": low, "high": high, "seconds": seconds})
    limits = dict(word.split("=") for word in arguments.limits.split(",") if word)
    for word in arguments.tiers.split(","):
        tier, _, compiled = word.partition(":")
        n = int(limits.get(tier, len(y)))
        how = {
            "suite": "autoattack",
            "threat": threat,
            "tier": tier,
            "runtime": ht.Runtime(compile=True if compiled else None),
        }
        run = lambda: ht.evaluate(model, (x[:n], y[:n]), quiet=True, **how)  # noqa: B023, E731
        measured, seconds = timed(run)
        robust = torch.from_numpy(measured.robust).cuda()
        facts = tier_facts(measured, seconds)
        if word in arguments.again.split(","):
            facts["again_s"] = timed(run)[1]
        if reference is not None:
            facts |= {
                "agreement": (robust == reference[:n]).float().mean().item(),
                "official_robust_accuracy": reference[:n].float().mean().item(),
                "only_ours_broke": int((reference[:n] & ~robust).sum()),
                "only_official_broke": int((robust & ~reference[:n]).sum()),
            }
            if n == len(y):
                facts["times_faster"] = found["official"]["seconds"] / facts.get("again_s", seconds)
        tiers[word] = facts
        print(word, json.dumps(facts), flush=True)
    for tier in arguments.fresh.split(",") if arguments.fresh else []:
        facts = fresh(arguments, tier)
        if reference is not None:
            facts["times_faster"] = found["official"]["seconds"] / facts["fresh_s"]
        tiers[f"{tier}, fresh process"] = facts
        print("fresh", tier, json.dumps(facts), flush=True)
    with preserve_state(model):
        standing = robust.nonzero()[:, 0]  # of the tier that came last
        verifier = Verifier(model, runtime)
        images = AttackInputs(x, y, torch.arange(len(y), device="cuda"), verifier.logits(x)).of(standing)
        say(pool=pool_share(search, verifier, images, threat, found["ceiling"]["gradients_per_s"]))
        if arguments.compiled:
            search.compile_blocks()
            best, seconds = timed(lambda: ceiling(search, x, y))
            say(compiled={"ceiling": best, "compile_s": seconds})
            pool_share(search, verifier, images, threat, best["gradients_per_s"])  # compiles for the pool's own shapes
            say(compiled_pool=pool_share(search, verifier, images, threat, best["gradients_per_s"]))
    return found | {"tiers": tiers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--threat", default="linf:8/255")
    parser.add_argument("-n", type=int, default=1000, help="the first images of the test set")
    parser.add_argument("--root", default="data", help="where the data lies")
    parser.add_argument("--tiers", default="exact,verified,fast", help="TIER:compiled compiles from the start")
    parser.add_argument("--limits", default="", help="exact=500: that tier on the first 500 images only")
    parser.add_argument("--again", default="fast", help="tiers that are called twice")
    parser.add_argument("--fresh", default="", help="tiers that are also timed in a process of their own")
    parser.add_argument("--official", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compiled", action="store_true", help="also the ceiling and the pool with compiled blocks")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = measure(arguments)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
