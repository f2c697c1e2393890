"""Workers that share one GPU: wall time of a study of six short trainings, one after the other and two at a time.

    python benchmarks/shared_gpu.py --root ~/data --output benchmarks/results/shared_gpu.json

The study is six_trainings.yaml: each row trains for two epochs on CIFAR-10 and is measured on 1,000 images. Each way is
a fresh process of the command `hardtack study` in an empty folder; kernels that Triton compiles are there for all of
them after the first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

STUDY = Path(__file__).parent / "six_trainings.yaml"
WAYS: dict[str, list[str]] = {
    "one after the other": [],
    "two share the GPU": ["workers=2", "per_gpu=2"],
    "three share the GPU": ["workers=3", "per_gpu=3"],
}


def run(words: list[str], folder: Path) -> dict[str, Any]:
    """Wall time of the study, and the two columns of its table."""
    command = [sys.executable, "-m", "hardtack", "study", str(STUDY), f"output={folder}", *words]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    view = json.loads(next(folder.rglob("study.json")).read_text(encoding="utf-8"))
    return {"seconds": round(seconds, 1), "rows": {row["name"]: row["state"] for row in view["rows"]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder that contains cifar10/")
    parser.add_argument("--scale", default="short", choices=("smoke", "short"))
    parser.add_argument("--ways", nargs="+", type=int, default=[0, 1], help="numbers of ways")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    settings = [f"scale={options.scale}", f"data.root={options.root.resolve()}"]
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in options.ways:
            name, words = list(WAYS.items())[number]
            measured[name] = run([*settings, *words], Path(folder, str(number)))
            print(f"{name}: {measured[name]['seconds']} s", flush=True)
    record = {
        "command": "python benchmarks/shared_gpu.py --root data", "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", "torch": torch.__version__,
        "data": "CIFAR-10 (JPEG)" if options.scale == "short" else "digits", "measured": measured,
    }  # fmt: skip
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
