"""How fast every 32-pixel model of the zoo is in bf16, as a share of the card's own matrix product.

    python benchmarks/models.py --output benchmarks/results/models.json      # on a GPU
    python benchmarks/models.py --table docs/models.md                       # writes the table from the results
    python benchmarks/models.py --rates src/hardtack/studies/rates.json      # and what plans of studies count with

Forward (eval, no gradients) and forward with backward to the parameters (train) under autocast, the blocks compiled
(`fullgraph=True`; equal blocks share one compilation) and the whole pass replayed as a CUDA graph, channels-last.
Both memory formats are compared uncompiled. `share` is multiply-adds × 2 (backward: × 6) × images/s over the rate of a
bf16 product of two 8192×8192 matrices, measured alone before the others start.

One process a model, several at a time, for compiling takes a minute of one core; the process that is ready to measure
has the card and the cores for itself, the others are stopped meanwhile. Equal networks are measured once. Models that
--output holds already are not measured again: repeat the command until it is complete.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.models import find_blocks, load_model
from hardtack.models.facts import known

FORMATS = ("contiguous_format", "channels_last")
Popen = subprocess.Popen[str]
MARK = "<!-- written by benchmarks/models.py -->"


def names() -> list[str]:
    """The 32-pixel models, those with few different blocks first; of equal networks the first name."""
    chosen = [name for name, facts in known().items() if facts.image_size == 32 and name != "vit_digits"]
    chosen.sort(key=lambda name: (known()[name].blocks > 50, known()[name].tokens.count("→"), name))
    return [name for name in chosen if twin(name, chosen) == name]


def twin(name: str, among: list[str]) -> str | None:
    """The first name that stands for the same network."""
    alike = [vars(known()[name])[key] for key in ("parameters", "gflops", "tokens", "blocks")]
    return next(
        (
            other
            for other in among
            if [vars(known()[other])[k] for k in ("parameters", "gflops", "tokens", "blocks")] == alike
        ),
        None,
    )


# ---------------------------------------------------------------- one model, in a process of its own


def replayed(function: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function()
    return graph


def seconds(graph: torch.cuda.CUDAGraph) -> float:
    """The best of five, each long enough for the clock to tell."""
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


def measured_alone(name: str, alone: Callable[[], None]) -> dict[str, Any]:
    """Compile beside other processes; from `alone()` on there are none."""
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 128  # as many kinds of blocks as a network may have
    batch = 512 if known()[name].gflops < 1 else 256
    model, x = load_model(name, num_classes=10, seed=0).cuda(), torch.rand(batch, 3, 32, 32, device="cuda")
    forward, both = passes(model.to(memory_format=torch.channels_last), x)
    both()  # cuDNN and cuBLAS load what they need
    for block in find_blocks(model):
        block.module.compile(fullgraph=True, dynamic=False)
    found: dict[str, Any] = {"batch": batch}
    try:
        forward(), both()
    except Exception as error:
        found["compiled_error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    alone()
    if "compiled_error" not in found:
        graph = replayed(both)
        found["compiled"] = {"forward_backward": batch / seconds(graph), "kernels": kernels(graph)}
        del graph
        found["compiled"]["forward"] = batch / seconds(replayed(forward))
    found["eager"] = {}
    with torch.compiler.set_stance("force_eager"):
        for form in FORMATS:
            model.to(memory_format=getattr(torch, form))
            found["eager"][form] = {"forward_backward": batch / seconds(replayed(both))}
    return found


def kernels(graph: torch.cuda.CUDAGraph) -> list[tuple[str, float]]:
    """The kernels that take most of a replay, with their share of it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    spent = {event.key: event.self_device_time_total for event in profile.key_averages()}
    total = sum(spent.values()) or 1
    return [(key[:80], round(spent[key] / total, 3)) for key in sorted(spent, key=lambda key: -spent[key])[:8]]


def peak() -> dict[str, Any]:
    """bf16 multiply-adds × 2 a second of a large matrix product."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return {
        "peak_tflops": 2 * 8192**3 / seconds(replayed(lambda: a @ b)) / 1e12,
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip


def serve(name: str) -> None:
    """What a process of one model does: say that it is ready, wait to be alone, say what it measured."""

    def alone() -> None:
        torch.cuda.synchronize()
        print("ready", flush=True)
        sys.stdin.readline()

    if name == "peak":
        alone()
    try:
        found = peak() if name == "peak" else measured_alone(name, alone)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    print(json.dumps(found), flush=True)


# ---------------------------------------------------------------- all of them


class Workers:
    """Processes of which one at a time is let measure while the others stand still: `SCRIPT --one NAME` each.

    `bystanders` are process groups that stand still as well; what they have given to the card may take two seconds.
    """

    def __init__(self, ends: float, threads: int, script: str = __file__, bystanders: Sequence[int] = ()) -> None:
        self.ends, self.threads, self.alone, self.living = ends, threads, threading.Lock(), set[Popen]()
        self.script, self.bystanders = script, bystanders

    def measure(self, name: str) -> dict[str, Any] | None:
        """None when the time is up."""
        if time.monotonic() > self.ends:
            return None
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(self.threads), "OMP_NUM_THREADS": "1"}
        with self.alone:
            process = subprocess.Popen(
                [sys.executable, self.script, "--one", name], env=environment, text=True, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.living.add(process)
        timer = threading.Timer(self.ends - time.monotonic(), lambda: _signal(process.pid, signal.SIGKILL))
        timer.start()
        try:
            return self._listen(process)
        finally:
            timer.cancel()
            self.living.discard(process)

    def _listen(self, process: Popen) -> dict[str, Any] | None:
        assert process.stdin is not None
        line = _said(process)
        if line == "ready":
            with self.alone, self._others_stopped(process), suppress(BrokenPipeError):
                process.stdin.write("go\n")
                process.stdin.flush()
                line = _said(process)
        process.wait()
        return json.loads(line) if line else None

    @contextmanager
    def _others_stopped(self, process: Popen) -> Iterator[None]:
        others = [other.pid for other in self.living if other is not process] + list(self.bystanders)
        for other in others:
            _signal(other, signal.SIGSTOP)
        time.sleep(2.0 if self.bystanders else 0.1)  # what they had given to the card ends
        try:
            yield
        finally:
            for other in others:
                _signal(other, signal.SIGCONT)


def _said(process: Popen) -> str:
    """The next thing that `serve` says; libraries print too. Empty when it has ended."""
    assert process.stdout is not None
    return next((line.strip() for line in process.stdout if line.startswith(("ready", "{"))), "")


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def measure_all(chosen: list[str], processes: int, limit_s: float, output: Path) -> None:
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"models": {}}
    workers = Workers(time.monotonic() + limit_s, max(1, (os.cpu_count() or 1) // processes))
    found |= {"command": "python benchmarks/models.py", "date": datetime.date.today().isoformat()}
    found |= workers.measure("peak") or {}
    left = [name for name in chosen if "compiled" not in found["models"].get(name, {})]
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        for name, row in zip(left, pool.map(workers.measure, left), strict=True):
            print(name, "not measured" if row is None else json.dumps(row)[:160], flush=True)
            if row is not None:
                found["models"][name] = row
                output.write_text(json.dumps(found, indent=1) + "\n")


# ---------------------------------------------------------------- the table


def table(results: dict[str, Any]) -> str:
    lines = [
        "| model | parameters | GFLOPs | forward img/s | share | forward + backward img/s | share | channels-last |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(name for name, facts in known().items() if facts.image_size == 32):
        facts, measured = known()[name], twin(name, list(results["models"]))
        if measured is None:
            continue
        row = results["models"][measured]
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


def rates(results: dict[str, Any]) -> dict[str, float]:
    """Multiply-adds a second of a forward and backward pass, by model; to two digits."""
    found = {}
    for name in sorted(name for name, facts in known().items() if facts.image_size == 32):
        measured = twin(name, list(results["models"]))
        row = results["models"].get(measured, {})
        if "compiled" in row:
            found[name] = float(f"{3e9 * known()[name].gflops * row['compiled']['forward_backward']:.2g}")
    return found


def write_rates(results: Path, file: Path) -> None:
    record = json.loads(results.read_text())
    about = {name: record[name] for name in ("device", "torch", "date", "command")}
    file.write_text(json.dumps({**about, "rates": rates(record)}, indent=1) + "\n")


def write_table(results: Path, page: Path) -> None:
    before, _, rest = page.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    page.write_text(f"{before}{MARK}\n{table(json.loads(results.read_text()))}\n{MARK}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes at a time")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="what it cuts off is said")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/models.json"))
    parser.add_argument("--table", type=Path, help="write the table of --output into this page, and measure nothing")
    parser.add_argument("--rates", type=Path, help="write the rates of --output into this file, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else names()
    if arguments.one:
        serve(arguments.one)
    elif arguments.table:
        write_table(arguments.output, arguments.table)
    elif arguments.rates:
        write_rates(arguments.output, arguments.rates)
    else:
        measure_all(chosen, arguments.workers, arguments.limit_s, arguments.output)


if __name__ == "__main__":
    main()
