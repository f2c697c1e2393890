"""What the audit costs on honest models: the time of `tier=fast` with it and without it.

    python benchmarks/audit_cost.py --root DATA --output benchmarks/results/audit_cost.json

Networks are trained for some seconds on attacked images of CIFAR-10 (false_alarms.py) and evaluated by
`suite=autoattack tier=fast threat=linf:4/255` twice with `audit=0` and twice with the audit, alternately, in one
process. The shorter time of each counts; the very first call, which loads kernels, does not. `--plain` times only the
default, for versions that have no audit.
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import io
import json
import pstats
import time
from pathlib import Path
from typing import Any

import torch
from false_alarms import train

import hardtack as ht


def timed(model: torch.nn.Module, images: Any, settings: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    result = ht.evaluate(
        model, images, suite="autoattack", tier="fast", threat="linf:4/255", quiet=True,
        runtime=ht.Runtime(device=images[0].device.type), **settings,
    )  # fmt: skip
    seconds = time.monotonic() - began
    last = result.results[-1]
    return {
        "seconds": round(seconds, 3), "robust": result.robust_accuracy, "stages_s": last.extra["seconds"],
        "audit": last.extra.get("audit"), "red": [flag["code"] for flag in result.flags if flag["level"] == "red"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder that holds cifar10/*.parquet")
    parser.add_argument("--output", required=True)
    parser.add_argument("--models", default="vit_tiny_patch4_32,resnet18_cifar")
    parser.add_argument("--sizes", default="1000,10000", help="numbers of test images")
    parser.add_argument("--seconds", type=float, default=20, help="of training")
    parser.add_argument("--weights", help="folder: trained weights are stored here, and read where they exist")
    parser.add_argument("--plain", action="store_true", help="time the default only")
    parser.add_argument("--profile", help="write a profile of one more evaluation with the audit to this file")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = [int(size) for size in arguments.sizes.split(",")]

    def images(split: str, count: int) -> Any:
        batch = ht.load_data("parquet:cifar10", split, root=arguments.root, limit=count).batch(range(count), device)
        return batch.x.clone(), batch.y.clone()

    test = images("test", max(sizes))
    modes: dict[str, dict[str, Any]] = {"default": {}} if arguments.plain else {"audit=0": {"audit": 0}, "default": {}}
    rows = []
    for name in arguments.models.split(","):
        torch.manual_seed(0)
        model = ht.load_model(name, num_classes=10, image_size=32).to(device)
        kept = Path(arguments.weights) / f"{name}.pt" if arguments.weights else None
        if kept is not None and kept.exists():
            model.load_state_dict(torch.load(kept, weights_only=True))
        else:
            train(model, *images("train", 20_000), attacked=True, seconds=arguments.seconds)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                torch.save(model.state_dict(), kept)
        model.eval()
        timed(model, tuple(part[:64] for part in test), {})
        for size in sizes:
            some = tuple(part[:size] for part in test)
            calls: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
            for _ in range(2):
                for mode, settings in modes.items():
                    calls[mode].append(timed(model, some, settings))
            best = {mode: min(found, key=lambda call: call["seconds"]) for mode, found in calls.items()}
            row: dict[str, Any] = {"model": name, "n": size, **best}
            if not arguments.plain:
                row["ratio"] = round(best["default"]["seconds"] / best["audit=0"]["seconds"], 3)
            rows.append(row)
            print(json.dumps(row), flush=True)
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(timed, model, tuple(part[: sizes[0]] for part in test), {})
            text = io.StringIO()
            pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(70)
            Path(arguments.profile).write_text(text.getvalue())
    card = torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    record = {
        "what": __doc__, "data": "CIFAR-10 (JPEG)", "device": card, "torch": torch.__version__,
        "version": getattr(ht, "__version__", ""), "date": str(datetime.date.today()), "rows": rows,
    }  # fmt: skip
    Path(arguments.output).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
