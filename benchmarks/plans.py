"""Do plans hold? `hardtack plan …`, then the command itself, each in a fresh process: planned and real time and memory.

    python benchmarks/plans.py --root DATA --output benchmarks/results/plans_gpu.json
    python benchmarks/plans.py --small --output benchmarks/results/plans_cpu.json          # digits, on a CPU

Six trainings (four methods, three families of architectures), then suites on the first of the trained models. Real
time is from the start of the process to its end; real memory is the peak of torch's tensors on a GPU and of the process
on a CPU. A case that is in the output already is not measured again; `--budget` seconds after the start no case is
begun. Files are read and kernels are built once before, so that the first process does not pay for all.

`ratio` is planned / real: a plan holds from 0.8 to 1.25. Where work depends on how many images an attack breaks, the
plan gives a range, and `in_range` says whether the real time lies in it, with a quarter to spare. `waited_s` are the
seconds in which the real process had no core, `cpu_s` what it computed: on a busy machine read `idle_ratio`, which
leaves the waiting out, or with one thread (OMP_NUM_THREADS=1) on a CPU `cpu_ratio`, planned / computed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TRAININGS = {
    "vit_pgd": "cifar10/methods/vit_pgd",
    "xcit_pgd": "cifar10/methods/xcit_pgd",
    "preact_pgd": "cifar10/methods/preact_pgd",
    "rvt_rspc": "cifar10/rspc/rvt_rspc",
    "vit_sam": "cifar10/cauchy/vit_t1",
    "vit_trades": "cifar10/methods/vit_trades",
}
SUITES = {
    "clean": ["suite=clean", "n=10000"],
    "pgd": ["suite=pgd", "n=2000"],
    "autoattack_fast": ["suite=autoattack", "tier=fast", "n=1000"],
    "corruptions": ["suite=corruptions", "n=1000"],
    "curve": ["suite=curve", "n=500"],
}
SMALL_TRAININGS = {
    "standard": ["digits/standard", "train.epochs=12"],
    "adversarial": ["digits/adversarial", "train.epochs=6"],
    "trades": ["digits/trades", "train.epochs=6"],
    "rspc": ["digits/rspc", "train.epochs=4"],
    "sam": ["digits/standard", "train.epochs=8", "sharpness=sam"],
    "preact": ["digits/standard", "train.epochs=1", "model=preact_resnet18_cifar", "data.limit=160"],
}
SMALL_SUITES = {
    "clean": ["suite=clean"],
    "pgd": ["suite=pgd"],
    "autoattack_fast": ["suite=autoattack", "tier=fast"],
    "autoattack_verified": ["suite=autoattack", "tier=verified", "n=32"],
    "corruptions": ["suite=corruptions", "n=128"],
    "perturbations": ["suite=perturbations", "n=128"],
    "patches": ["suite=patches"],
    "curve": ["suite=curve", "n=64"],
    "attacks": ["suite=attacks", "attacks=[apgd_ce,fab_t]", "n=128"],
}
ANALYSES = {"jacobian": ["jacobian", "n=200"]}
SMALL_ANALYSES = {"jacobian": ["jacobian", "n=100"], "perturbations": ["perturbations", "n=64"]}
WITHIN = 1.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="the folder that holds cifar10/*.parquet")
    parser.add_argument("--small", action="store_true", help="short trainings on the bundled digits, for a CPU")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="for runs; a temporary one otherwise")
    parser.add_argument("--only", nargs="*", help="these cases: train/NAME, evaluate/NAME, analyze/NAME …")
    parser.add_argument("--limit", type=int, default=20000, help="images of the training set")
    parser.add_argument("--epochs", type=int, default=4, help="of every training")
    parser.add_argument("--words", nargs="*", default=[], help="further settings of every training")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]), options.child[2:])
        return
    if not options.small and not options.root:
        parser.error("give --root, the folder that holds cifar10/*.parquet, or --small")
    with tempfile.TemporaryDirectory() as temporary:
        measure(options, options.folder or Path(temporary))


def cases(options: argparse.Namespace, folder: Path) -> dict[str, tuple[str, list[str], list[str]]]:
    """By name: the verb, its words, and the words that only the command itself takes."""
    data = [] if options.small else [f"data.root={options.root}"]
    short = [f"train.epochs={options.epochs}", f"validation.every={options.epochs}", f"data.limit={options.limit}"]
    short += options.words
    trainings = SMALL_TRAININGS if options.small else {name: [recipe, *short] for name, recipe in TRAININGS.items()}
    found = {
        f"train/{name}": ("train", [*words, *data], [f"output={folder / name}"]) for name, words in trainings.items()
    }
    first = str(folder / ("adversarial" if options.small else "vit_pgd"))
    for name, words in (SMALL_SUITES if options.small else SUITES).items():
        found[f"evaluate/{name}"] = ("evaluate", [first, *words, *data], [])
    for name, words in (SMALL_ANALYSES if options.small else ANALYSES).items():
        found[f"analyze/{name}"] = ("analyze", [first, *words, *data], [])
    if options.small:
        found["corrupt/digits"] = ("corrupt", ["digits", str(folder / "corrupted")], [])
        found["study/table1"] = ("study", ["cauchy/table1", "scale=smoke", f"output={folder / 'studies'}"], [])
    return found


def measure(options: argparse.Namespace, folder: Path) -> None:
    began, record = time.monotonic(), {"command": " ".join(sys.argv), "cases": {}}
    if options.output.is_file():
        record = json.loads(options.output.read_text())
    run("warm", [], folder)
    for name, (verb, words, own) in cases(options, folder).items():
        if name in record["cases"] or (options.only and name not in options.only):
            continue
        if verb in ("evaluate", "analyze") and not Path(words[0]).exists():
            print(f"{name}: left out, {words[0]} was not trained", flush=True)
            continue
        if time.monotonic() - began > options.budget:
            print(f"{name}: left out, the budget of {options.budget:.0f} s is spent", flush=True)
            continue
        planned, real = run("plan", [verb, *words], folder), run(verb, [*words, *own], folder)
        record["cases"][name] = {"words": words, "planned": planned, "real": real, **compared(planned, real)}
        known = {key: real[key] for key in ("device", "torch") if key in real}
        record |= {**known, "date": datetime.date.today().isoformat()}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{name}: {line(record['cases'][name])}", flush=True)


def compared(planned: dict[str, Any], real: dict[str, Any]) -> dict[str, Any]:
    if "error" in planned or "error" in real:
        return {}
    low, high = planned["range_s"]
    idle_s = real["seconds"] - (real["waited_s"] if real["device"] == "cpu" else 0.0)
    return {
        "ratio": {
            "time": round(planned["seconds"] / real["seconds"], 3),
            "memory": round(planned["memory_mb"] / max(real["memory_mb"], 1e-9), 3),
        },
        "idle_ratio": round(planned["seconds"] / idle_s, 3),
        "cpu_ratio": round(planned["seconds"] / real["cpu_s"], 3),
        "in_range": low / WITHIN <= idle_s <= high * WITHIN,
    }  # fmt: skip


def line(case: dict[str, Any]) -> str:
    planned, real = case["planned"], case["real"]
    if "ratio" not in case:
        return f"FAILED: {(planned.get('error') or real.get('error'))[-400:]}"
    low, high = planned["range_s"]
    ratios = f"{case['ratio']['time']:.2f} (idle {case['idle_ratio']:.2f}, cpu {case['cpu_ratio']:.2f})"
    return (
        f"planned {planned['seconds']:.1f} s ({low:.1f} to {high:.1f}), real {real['seconds']:.1f} s: {ratios}; "
        f"planned {planned['memory_mb']:,.0f} MB, real {real['memory_mb']:,.0f} MB: {case['ratio']['memory']:.2f}; "
        f"planning took {planned['took_s']:.1f} s"
    )


def run(what: str, words: list[str], folder: Path) -> dict[str, Any]:
    """A process by itself, timed from outside; what it says about itself is in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "said.json"
    said.unlink(missing_ok=True)
    loaded, began = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(
        [sys.executable, __file__, "--output", "-", "--child", what, str(said), *words], capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    if done.returncode or not said.is_file():
        return {"error": (done.stdout + done.stderr)[-2000:], "took_s": round(seconds, 2)}
    found = {"took_s": round(seconds, 2), "load": round(loaded, 2), **json.loads(said.read_text())}
    return found if what == "plan" else {"seconds": round(seconds, 2), **found}


def child(what: str, said: Path, words: list[str]) -> None:
    """A plan or a command in this process; afterwards its peak memory and how long it waited for a core."""
    import torch

    from hardtack.base.instruments import Instruments, process_age_s
    from hardtack.base.runtime import Runtime

    age_s = process_age_s()  # Python has started, and torch is there
    instruments, device = Instruments(whole_process=True), Runtime().torch_device
    found: dict[str, Any] = {}
    if what == "warm":
        warm(device)
    elif what == "plan":
        from hardtack.commands.plan import plan_command

        made = plan_command(words)
        low, high = made.range_s
        found = {
            "seconds": round(made.total_s, 2), "range_s": [round(low, 2), round(high, 2)],
            "memory_mb": round(made.memory_mb, 1), "parts": parts(made), "text": str(made),
        }  # fmt: skip
    else:
        from hardtack.commands.cli import main as command

        if code := command([what, *words]):
            raise SystemExit(code)
        found = {"memory_mb": round(instruments.peak_mb(device), 1)}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    waited_s, cpu_s = instruments.now().delayed_s, time.process_time()
    used = {"age_at_import_s": round(age_s, 2), "waited_s": round(waited_s, 2), "cpu_s": round(cpu_s, 2)}
    said.write_text(json.dumps({**found, "device": name, "torch": torch.__version__, **used}))


def parts(made: Any) -> dict[str, float]:
    """What the time of a plan is made of, in seconds."""
    names = ("start_s", "setup_s", "training_s", "validation_s", "other_s", "audit_s", "plan_s")
    found = {name: float(getattr(made, name)) for name in names if hasattr(made, name)}
    for plan in getattr(made, "plans", []):
        found |= parts(plan) | {
            "begin_s": plan.rehearsed.begin_s, "images_s": plan.expected.seconds, "after_s": plan.rehearsed.after_s,
        }  # fmt: skip
    return {name: round(seconds, 3) for name, seconds in found.items()}


def warm(device: Any) -> None:
    """Read all modules once, and start the device."""
    import torch

    from hardtack.models import load_model

    model = load_model("vit_tiny_patch4_32", num_classes=10).to(device)
    with torch.no_grad():
        model(torch.rand(2, 3, 32, 32, device=device))


if __name__ == "__main__":
    main()
