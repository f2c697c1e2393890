"""How fast every 32-pixel model of the zoo is in bf16, as a share of the card's own matrix product.

    python benchmarks/models.py --output benchmarks/results/models.json      # on a GPU
    python benchmarks/models.py --table docs/models.md                       # writes the table from the results

Forward (eval, no gradients) and forward with backward to the parameters (train) under autocast, the blocks compiled
(`fullgraph=True`; equal blocks share one compilation) and the whole pass replayed as a CUDA graph, in the better of
both memory formats, which are compared uncompiled. `share` is multiply-adds × 2 (backward: × 6) × images/s over the
rate of a bf16 product of two 8192×8192 matrices in the same run.

First several processes compile into the cache that torch keeps (`--warm` does only that), then one process measures,
alone on the card. Models that --output holds already are not measured again: repeat the command until it is complete.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
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
    """The best of five."""
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


def rates(model: nn.Module, x: Tensor) -> dict[str, Any]:
    forward, both = passes(model, x)
    found = {"forward": len(x) / seconds(replayed(forward))}
    graph = replayed(both)
    return found | {"forward_backward": len(x) / seconds(graph), "kernels": kernels(graph)}


def prepare(name: str) -> tuple[nn.Module, Tensor]:
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 128  # as many kinds of blocks as a network may have
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    batch = 512 if known()[name].gflops < 1 else 256
    return load_model(name, num_classes=10, seed=0).cuda(), torch.rand(batch, 3, 32, 32, device="cuda")


def compile_blocks(model: nn.Module) -> None:
    for block in find_blocks(model):
        block.module.compile(fullgraph=True, dynamic=False)


def warm(name: str) -> None:
    """Compile and forget: the cache remembers."""
    model, x = prepare(name)
    compile_blocks(model)
    for run in passes(model.to(memory_format=torch.channels_last), x):
        run()


def measure(name: str) -> dict[str, Any]:
    model, x = prepare(name)
    found: dict[str, Any] = {"batch": len(x), "eager": {}}
    for form in FORMATS:
        found["eager"][form] = rates(model.to(memory_format=getattr(torch, form)), x)
    compile_blocks(model)
    try:
        found["compiled"] = rates(model, x)  # channels-last: what helps convolutions, and nothing else notices
    except Exception as error:
        found["compiled_error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
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


def warm_all(chosen: list[str], workers: int, limit_s: float) -> None:
    """Every model compiled once, several at a time; one that fails says so, and again where it is measured."""
    ends = time.monotonic() + limit_s

    def one(name: str) -> None:
        left = ends - time.monotonic()
        if left > 10:
            environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
            with contextlib.suppress(subprocess.TimeoutExpired):
                command = [sys.executable, __file__, "--one", name]
                ended = subprocess.run(command, env=environment, timeout=left, capture_output=True, text=True)
                print(name, "compiled" if ended.returncode == 0 else ended.stderr.strip()[-200:], flush=True)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, chosen))


def measure_all(chosen: list[str], limit_s: float, output: Path) -> None:
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"models": {}}
    found |= {
        "command": "python benchmarks/models.py " + " ".join(sys.argv[1:]), "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "peak_tflops": peak() / 1e12,
    }  # fmt: skip
    ends = time.monotonic() + limit_s
    left = [name for name in chosen if "compiled" not in found["models"].get(name, {})]
    for number, name in enumerate(left):
        if time.monotonic() > ends:
            print(f"not measured: {', '.join(left[number:])}", flush=True)
            break
        try:
            found["models"][name] = measure(name)
        except Exception as error:
            found["models"][name] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(name, json.dumps(found["models"][name])[:160], flush=True)
        output.write_text(json.dumps(found, indent=1) + "\n")


# ---------------------------------------------------------------- the table


def table(results: dict[str, Any]) -> str:
    lines = [
        "| model | parameters | GFLOPs | forward img/s | share | forward + backward img/s | share | channels-last |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(results["models"]):
        row, facts = results["models"][name], known()[name]
        start = f"| `{name}` | {facts.parameters / 1e6:.2f} M | {facts.gflops:.3g} |"
        if "compiled" not in row:
            lines.append(f"{start} – | – | – | – | {row.get('error') or row.get('compiled_error')} |")
            continue
        cells = []
        for key, factor in (("forward", 2), ("forward_backward", 6)):
            share = row["compiled"][key] * facts.gflops * factor / (results["peak_tflops"] * 1e3)
            cells.append(f"{row['compiled'][key]:,.0f} | {share:.1%}")
        contiguous, last = (row["eager"][form]["forward_backward"] for form in FORMATS)
        lines.append(f"{start} {' | '.join(cells)} | × {last / contiguous:.2f} |")
    return "\n".join(lines)


def write_table(results: Path, page: Path) -> None:
    before, _, rest = page.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    page.write_text(f"{before}{MARK}\n{table(json.loads(results.read_text()))}\n{MARK}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4), help="processes that compile")
    parser.add_argument("--warm", action="store_true", help="compile, and measure nothing")
    parser.add_argument("--cold", action="store_true", help="measure without compiling in several processes first")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="of each half; what it cuts off is said")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/models.json"))
    parser.add_argument("--table", type=Path, help="write the table of --output into this page, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else names()
    if arguments.one:
        warm(arguments.one)
    elif arguments.table:
        write_table(arguments.output, arguments.table)
    else:
        if not arguments.cold:
            warm_all(chosen, arguments.workers, arguments.limit_s)
        if not arguments.warm:
            measure_all(chosen, arguments.limit_s, arguments.output)


if __name__ == "__main__":
    main()
