"""`exact` against several seeds of the official AutoAttack, image by image.

    hardtack train digits/adversarial output=runs/adversarial
    python benchmarks/official_seeds.py runs/adversarial --threats l2:2.6,l1:25 -n 64 \\
        --output benchmarks/results/official_seeds.json

The official implementation must be importable (`pip install` it from its repository). Two seeds of it may disagree on
an image; `exact` is as good as the official code if it disagrees with a seed no more than the seeds do with each other.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import torch

import hardtack as ht

NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def robust_by_official(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, threat: ht.Threat, seed: int) -> Any:
    from autoattack import AutoAttack

    adversary = AutoAttack(
        model, norm=NORMS[threat.norm], eps=threat.radius, version="standard", device=x.device.type, seed=seed
    )
    adversary.verbose = False
    x_adv = adversary.run_standard_evaluation(x, y, bs=len(x))
    with torch.no_grad():
        return model(x_adv).argmax(dim=1) == y


def compare(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, threat: ht.Threat, seeds: int) -> dict[str, Any]:
    runtime = ht.Runtime(device=x.device.type)
    found: dict[str, Any] = {"threat": str(threat)}
    for tier in ("fast", "exact"):
        measured = ht.evaluate(model, (x, y), suite="autoattack", tier=tier, threat=threat, quiet=True, runtime=runtime)
        found[tier] = measured.robust_accuracy
    mine = torch.from_numpy(measured.robust).to(x.device)
    found["official"] = []
    for seed in range(seeds):
        theirs = robust_by_official(model, x, y, threat, seed)
        facts = {
            "seed": seed, "robust_accuracy": theirs.float().mean().item(),
            "only_exact_broke": int((theirs & ~mine).sum()), "only_official_broke": int((~theirs & mine).sum()),
        }  # fmt: skip
        found["official"].append(facts)
        print(json.dumps({"threat": str(threat), "exact": found["exact"], **facts}), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder of a model for the digits")
    parser.add_argument("--threats", default="l2:2.6,l1:25")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-n", type=int, default=64, help="test images")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    model = ht.load_run(arguments.run).to(arguments.device).eval()
    batch = ht.load_data("digits", "test").batch(range(arguments.n), arguments.device)
    threats = [ht.Threat.parse(word) for word in arguments.threats.split(",")]
    record = {
        "command": " ".join(["python", "benchmarks/official_seeds.py", *sys.argv[1:]]), "data": "digits",
        "n": arguments.n, "device": arguments.device, "torch": torch.__version__,
        "date": str(datetime.date.today()),
        "rows": [compare(model, batch.x, batch.y, threat, arguments.seeds) for threat in threats],
    }  # fmt: skip
    Path(arguments.output).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
