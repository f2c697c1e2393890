"""False alarms: how often an honest model gets a red flag.

    python benchmarks/false_alarms.py --root DATA --output benchmarks/results/false_alarms.json [--part 0/3]

The smallest network of every family of the zoo that takes 32 pixels is trained for a few seconds on CIFAR-10, once on
clean images and once on attacked ones (PGD with two steps, linf:4/255), and evaluated by `suite=autoattack tier=fast`
at linf:4/255 and `suite=pgd` at linf:8/255. A red flag on any of them is a false alarm: nothing hides its gradients.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hardtack as ht
from hardtack.base.registry import models

EPS = 4 / 255


def smallest_of_each_family() -> list[str]:
    """By the number of parameters, among those made for 32 pixels."""
    facts = json.loads((Path(ht.__file__).parent / "models" / "facts.json").read_text())
    chosen: dict[str, tuple[float, str]] = {}
    for name in models.names():
        fact = facts.get(name)
        if fact is None or fact.get("pixels", fact.get("image_size")) != 32:
            continue
        family, size = fact["family"], float(fact["parameters"])
        chosen[family] = min(chosen.get(family, (float("inf"), "")), (size, name))
    return sorted(name for _, name in chosen.values())


def train(model: nn.Module, x: Tensor, y: Tensor, *, attacked: bool, seconds: float) -> int:
    """So many seconds of AdamW; returns the steps taken."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        rows = torch.randint(0, len(x), (256,), device=x.device)
        image, label = x[rows], y[rows]
        if attacked:
            image = perturbed(model, image, label)
        model.train()
        with torch.autocast("cuda", torch.bfloat16, enabled=x.is_cuda):
            loss = F.cross_entropy(model(image).float(), label, label_smoothing=0.1)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        steps += 1
    model.eval()
    return steps


def perturbed(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    point = (x + EPS * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
    model.eval()
    for _ in range(2):
        point = point.detach().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=x.is_cuda):
            loss = F.cross_entropy(model(point).float(), y)
        (gradient,) = torch.autograd.grad(loss, point)
        point = (x + (point + EPS * gradient.sign() - x).clamp(-EPS, EPS)).clamp(0, 1)
    return point.detach()


def measure(name: str, data: Any, test: Any, *, attacked: bool, seconds: float) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model = ht.load_model(name, num_classes=10, image_size=32).to(data[0].device)
    steps = train(model, *data, attacked=attacked, seconds=seconds)
    rows = []
    for suite in ({"suite": "autoattack", "tier": "fast", "threat": "linf:4/255"}, {"suite": "pgd"}):
        began = time.monotonic()
        result = ht.evaluate(model, test, quiet=True, runtime=ht.Runtime(device=data[0].device.type), **suite)
        (audit,) = result.results[-1].extra.get("audit") or ({},)
        rows.append({
            "model": name, "training": "attacked" if attacked else "clean", "steps": steps, **suite,
            "clean": result.clean_accuracy, "robust": result.robust_accuracy,
            "red": [flag["code"] for flag in result.flags if flag["level"] == "red"],
            "audit": {key: value for key, value in audit.items() if key not in ("threat", "attacks")},
            "seconds": round(time.monotonic() - began, 2),
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder that holds cifar10/*.parquet")
    parser.add_argument("--output", required=True)
    parser.add_argument("--part", default="0/1", help="K/N: every Nth network, from the Kth on")
    parser.add_argument("--seconds", type=float, default=6, help="of training")
    parser.add_argument("-n", type=int, default=128, help="test images")
    parser.add_argument("--most-minutes", type=float, default=60, help="begin no further network after this time")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def images(split: str, count: int) -> tuple[Tensor, Tensor]:
        batch = ht.load_data("parquet:cifar10", split, root=arguments.root, limit=count).batch(range(count), device)
        return batch.x.clone(), batch.y.clone()

    data, test = images("train", 10_000), images("test", arguments.n)
    first, parts = (int(word) for word in arguments.part.split("/"))
    names, rows, failed, began = smallest_of_each_family()[first::parts], [], {}, time.monotonic()
    for name in names:
        if time.monotonic() - began > 60 * arguments.most_minutes:
            failed[name] = "not begun: out of time"
            continue
        for attacked in (False, True):
            try:
                rows += measure(name, data, test, attacked=attacked, seconds=arguments.seconds)
            except (RuntimeError, ht.UserError) as error:
                failed[name] = str(error)[:200]
    card = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    record = {
        "what": __doc__, "data": "CIFAR-10 (JPEG)", "device": card, "torch": torch.__version__,
        "date": str(datetime.date.today()), "evaluations": len(rows),
        "false_alarms": sum(bool(row["red"]) for row in rows), "failed": failed, "rows": rows,
    }  # fmt: skip
    Path(arguments.output).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
