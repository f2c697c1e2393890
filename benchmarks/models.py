"""How fast every 32-pixel model of the zoo is in bf16, as a share of the card's own matrix product.

    python benchmarks/models.py --output benchmarks/results/models.json      # on a GPU
    python benchmarks/models.py --table docs/models.md                       # writes the table from the results

Forward (eval, no gradients) and forward with backward to the parameters (train) under autocast, the whole network
compiled (`fullgraph=True`) and replayed as a CUDA graph; the better of both memory formats, which are compared
uncompiled. `share` is multiply-adds × 2 (backward: × 6) × images/s over the rate of a bf16 product of two 8192×8192
matrices in the same run. Compilation runs in several processes, a lock keeps every measurement alone on the card;
what others compile meanwhile can still cost a measurement a few per cent.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.models import load_model
from hardtack.models.facts import known

MARK = "<!-- written by benchmarks/models.py -->"


def names() -> list[str]:
    """The 32-pixel models, those that take longest to compile first."""
    chosen = [name for name, facts in known().items() if facts.image_size == 32 and name != "vit_digits"]
    return sorted(chosen, key=lambda name: -known()[name].blocks)


# ---------------------------------------------------------------- one model, in a process of its own


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replayed(function: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function()
    return graph


def seconds(graph: torch.cuda.CUDAGraph) -> float:
    """The best of five: others may use the card for a moment."""
    graph.replay()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / 5)
    return best


def passes(run: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward without gradients, and forward with backward."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    y = torch.zeros(len(x), dtype=torch.int64, device=x.device)

    def forward() -> Tensor:
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return run(x)

    def both() -> Any:
        model.train()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = nn.functional.cross_entropy(run(x).float(), y)
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    return forward, both


def measure(name: str, lock: Path) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    facts = known()[name]
    batch = 512 if facts.gflops < 1 else 256
    x = torch.rand(batch, 3, 32, 32, device="cuda")
    model = load_model(name, num_classes=10, seed=0).cuda()
    found: dict[str, Any] = {"batch": batch, "gflops": facts.gflops, "parameters": facts.parameters}
    eager = {}
    for form in ("contiguous_format", "channels_last"):
        model = model.to(memory_format=getattr(torch, form))
        with alone(lock):
            eager[form] = batch / seconds(replayed(passes(model, model, x)[1]))
    best = max(eager, key=lambda form: eager[form])
    found["eager"], found["format"] = eager, best
    model = model.to(memory_format=getattr(torch, best))
    began = time.perf_counter()
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    forward, both = passes(compiled, model, x)
    forward()
    both()
    found["compile_s"] = time.perf_counter() - began
    with alone(lock):
        found["forward"] = batch / seconds(replayed(forward))
        graph = replayed(both)
        found["forward_backward"] = batch / seconds(graph)
        found["kernels"] = kernels(graph)
    return found


def kernels(graph: torch.cuda.CUDAGraph) -> list[tuple[str, float]]:
    """The kernels that take most of a replay, with their share of it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    spent = {event.key: event.self_device_time_total for event in profile.key_averages()}
    total = sum(spent.values()) or 1
    return [(key[:80], round(spent[key] / total, 3)) for key in sorted(spent, key=lambda key: -spent[key])[:8]]


# ---------------------------------------------------------------- all of them


def peak() -> float:
    """bf16 multiply-adds × 2 a second of a large matrix product."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / seconds(replayed(lambda: a @ b))


def measure_all(chosen: list[str], workers: int, limit_s: float, output: Path) -> None:
    lock = output.with_suffix(".lock")
    found: dict[str, Any] = {
        "command": "python benchmarks/models.py " + " ".join(sys.argv[1:]), "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "peak_tflops": peak() / 1e12, "models": {},
    }  # fmt: skip
    ends = time.monotonic() + limit_s

    def one(name: str) -> dict[str, Any]:
        left = ends - time.monotonic()
        if left < 20:
            return {"error": "no time left"}
        command = [sys.executable, __file__, "--one", name, "--lock", str(lock)]
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=left, env=environment)
        except subprocess.TimeoutExpired:
            return {"error": "no time left"}
        if ended.returncode:
            return {"error": ended.stderr.strip().splitlines()[-1][:300] if ended.stderr.strip() else "killed"}
        return json.loads(ended.stdout.splitlines()[-1])

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(one, name): name for name in chosen}
        for job in concurrent.futures.as_completed(jobs):
            found["models"][jobs[job]] = job.result()
            print(jobs[job], json.dumps(job.result())[:200], flush=True)
            output.write_text(json.dumps(found, indent=1) + "\n")


# ---------------------------------------------------------------- the table


def table(results: dict[str, Any]) -> str:
    lines = [
        "| model | parameters | GFLOPs | forward img/s | share | forward + backward img/s | share | format |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(results["models"]):
        row, facts = results["models"][name], known()[name]
        start = f"| `{name}` | {facts.parameters / 1e6:.2f} M | {facts.gflops:.3g} |"
        if "error" in row:
            lines.append(f"{start} – | – | – | – | {row['error']} |")
            continue
        cells = []
        for key, factor in (("forward", 2), ("forward_backward", 6)):
            share = row[key] * facts.gflops * factor / (results["peak_tflops"] * 1e3)
            cells.append(f"{row[key]:,.0f} | {share:.1%}")
        form = "channels-last" if row["format"] == "channels_last" else "contiguous"
        lines.append(f"{start} {' | '.join(cells)} | {form} |")
    return "\n".join(lines)


def write_table(results: Path, page: Path) -> None:
    before, _, rest = page.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    page.write_text(f"{before}{MARK}\n{table(json.loads(results.read_text()))}\n{MARK}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--limit-s", type=float, default=3600.0, help="what is not measured by then is left out")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/models.json"))
    parser.add_argument("--table", type=Path, help="write the table of --output into this page, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.lock)))
    elif arguments.table:
        write_table(arguments.output, arguments.table)
    else:
        chosen = arguments.only.split(",") if arguments.only else names()
        measure_all(chosen, arguments.workers, arguments.limit_s, arguments.output)


if __name__ == "__main__":
    main()
