"""How fast every 32-pixel model of the zoo is in bf16, as a share of the card's own matrix product.

    python benchmarks/models.py --output benchmarks/results/models.json      # on a GPU
    python benchmarks/models.py --table docs/models.md                       # writes the table from the results

Forward (eval, no gradients) and forward with backward to the parameters (train) under autocast, the blocks compiled
(`fullgraph=True`; equal blocks share one compilation) and the whole pass replayed as a CUDA graph, in the better of
both memory formats, which are compared uncompiled. `share` is multiply-adds × 2 (backward: × 6) × images/s over the
rate of a bf16 product of two 8192×8192 matrices in the same run. Several processes compile, a lock keeps every
measurement alone on the card; what others compile meanwhile can still cost a measurement a few per cent. First every
model is measured uncompiled, then compiled, those with few different blocks first; what --limit-s cuts off is said.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.models import find_blocks, load_model
from hardtack.models.facts import known

FORMATS = ("contiguous_format", "channels_last")
MARK = "<!-- written by benchmarks/models.py -->"


def names() -> list[str]:
    """The 32-pixel models, those with few different blocks first."""
    chosen = [name for name, facts in known().items() if facts.image_size == 32 and name != "vit_digits"]
    return sorted(chosen, key=lambda name: (known()[name].blocks > 50, known()[name].tokens.count("→"), name))


# ---------------------------------------------------------------- one model


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


def passes(model: nn.Module, x: Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward without gradients, and forward with backward."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    y = torch.zeros(len(x), dtype=torch.int64, device=x.device)

    def forward() -> Tensor:
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return model(x)

    def both() -> Any:
        model.train()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    return forward, both


def rates(model: nn.Module, x: Tensor, lock: Path) -> dict[str, Any]:
    forward, both = passes(model, x)
    forward()
    both()  # compiles, where there is something to compile, beside the measurements of others
    with alone(lock):
        found = {"forward": len(x) / seconds(replayed(forward))}
        graph = replayed(both)
        return found | {"forward_backward": len(x) / seconds(graph), "kernels": kernels(graph)}


def measure(name: str, how: str, lock: Path) -> dict[str, Any]:
    """`how`: eager, in both memory formats, or one of them, compiled."""
    torch.cuda.empty_cache()
    torch._dynamo.reset()
    batch = 512 if known()[name].gflops < 1 else 256
    x = torch.rand(batch, 3, 32, 32, device="cuda")
    model = load_model(name, num_classes=10, seed=0).cuda()
    if how == "eager":
        found: dict[str, Any] = {}
        for form in FORMATS:
            found[form] = rates(model.to(memory_format=getattr(torch, form)), x, lock)
        return {"batch": batch, "eager": found}
    model = model.to(memory_format=getattr(torch, how))
    began = time.perf_counter()
    for block in find_blocks(model):
        block.module.compile(fullgraph=True, dynamic=False)
    found = rates(model, x, lock)
    return {"compiled": found | {"format": how, "took_s": time.perf_counter() - began}}


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


def better_format(row: dict[str, Any]) -> str:
    return max(FORMATS, key=lambda form: row["eager"][form]["forward_backward"])


class Desk:
    """A folder through which the processes share their work: models that wait, and results."""

    def __init__(self, folder: Path) -> None:
        self.waiting, self.done, self.lock = folder / "waiting.json", folder / "done.jsonl", folder / "lock"

    def take(self) -> tuple[str, str] | None:
        """A model and how to measure it: uncompiled first, then compiled in its better format. None: all is done."""
        while True:
            with alone(self.lock.with_suffix(".desk")):
                rows = self.results()
                waiting = [
                    (name, how)
                    for name, how in json.loads(self.waiting.read_text())
                    if "error" not in rows.get(name, {})
                ]
                ready = [(name, how) for name, how in waiting if how == "eager" or "eager" in rows.get(name, {})]
                if ready:
                    name, how = ready[0]
                    waiting.remove(ready[0])
                    self.waiting.write_text(json.dumps(waiting))
                    return name, how if how == "eager" else better_format(rows[name])
            if not waiting:
                return None
            time.sleep(0.5)  # others are about to find out which format is better

    def put(self, name: str, found: dict[str, Any]) -> None:
        with alone(self.lock.with_suffix(".desk")), self.done.open("a") as file:
            file.write(json.dumps([name, found]) + "\n")

    def results(self) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for line in self.done.read_text().splitlines() if self.done.exists() else []:
            name, found = json.loads(line)
            rows.setdefault(name, {}).update(found)
        return rows


def work(desk: Desk) -> None:
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 128  # as many kinds of blocks as a network may have
    while (task := desk.take()) is not None:
        name, how = task
        try:
            desk.put(name, measure(name, how, desk.lock))
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            desk.put(name, {"error" if how == "eager" else "compiled_error": f"{type(error).__name__}: {reason}"})


def measure_all(chosen: list[str], workers: int, limit_s: float, output: Path) -> None:
    found: dict[str, Any] = {
        "command": "python benchmarks/models.py " + " ".join(sys.argv[1:]), "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "peak_tflops": peak() / 1e12,
    }  # fmt: skip
    ends = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        desk.waiting.write_text(json.dumps([(name, how) for how in ("eager", "compiled") for name in chosen]))
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        crew = [subprocess.Popen([sys.executable, __file__, "--work", folder], env=environment) for _ in range(workers)]
        while time.monotonic() < ends and any(worker.poll() is None for worker in crew):
            time.sleep(1)
            rows = desk.results()
            output.write_text(json.dumps(found | {"models": rows}, indent=1) + "\n")
        for worker in crew:
            worker.kill()
            worker.wait()
        rows = desk.results()
        output.write_text(json.dumps(found | {"models": rows}, indent=1) + "\n")
    print(f"{len(rows)} measured, {sum('compiled' in row for row in rows.values())} of them compiled", flush=True)


# ---------------------------------------------------------------- the table


def table(results: dict[str, Any]) -> str:
    lines = [
        "| model | parameters | GFLOPs | forward img/s | share | forward + backward img/s | share | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(results["models"]):
        row, facts = results["models"][name], known()[name]
        start = f"| `{name}` | {facts.parameters / 1e6:.2f} M | {facts.gflops:.3g} |"
        if "eager" not in row:
            lines.append(f"{start} – | – | – | – | {row.get('error', 'not measured')} |")
            continue
        better = better_format(row)
        best = row.get("compiled", row["eager"][better])
        cells = []
        for key, factor in (("forward", 2), ("forward_backward", 6)):
            share = best[key] * facts.gflops * factor / (results["peak_tflops"] * 1e3)
            cells.append(f"{best[key]:,.0f} | {share:.1%}")
        form = "channels-last" if better == "channels_last" else ""
        how = ", ".join(word for word in (form, "" if "compiled" in row else "uncompiled") if word)
        lines.append(f"{start} {' | '.join(cells)} | {how} |")
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
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(Desk(arguments.work))
    elif arguments.table:
        write_table(arguments.output, arguments.table)
    else:
        chosen = arguments.only.split(",") if arguments.only else names()
        measure_all(chosen, arguments.workers, arguments.limit_s, arguments.output)


if __name__ == "__main__":
    main()
