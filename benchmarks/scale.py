"""How an evaluation and a study scale: 1, 2 and 4 workers measured on this machine, 1 to 1,024 GPUs simulated.

    python benchmarks/scale.py --output benchmarks/results/scale.json      # 2 CPU cores, about 15 minutes

The simulation (hardtack.engine.simulate) drives the real schedule with a virtual clock. Its times are measured ones:

- evaluation: AutoAttack (tier=verified) of a ViT-Ti/4 on one H200, from results/attack_engine_vit_linf.json. An image
  that no attack breaks takes all passes, an image that is broken takes almost none; which ones are broken is drawn at
  random with the measured share. `imagenet` has 50,000 images of 224 pixels and a ViT-S/16: the measured time of an
  image is multiplied by the ratio of multiply-adds.
- study: every training of all studies at scale=paper, each once, with its dependencies. Its time is that of
  `hardtack plan study=NAME`: multiply-adds divided by the rate measured on one H200.

Slow and failing workers are assumptions, which FLEETS lists. Numbers of a row are medians over seeds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hardtack.base.errors import UserError
from hardtack.engine.executors.here import PIECES_PER_WORKER
from hardtack.engine.pieces import Span, missing_spans
from hardtack.engine.schedule import Schedule
from hardtack.engine.simulate import Fleet, simulate
from hardtack.models.facts import measure as model_facts
from hardtack.studies.plan import H200, plan_study
from hardtack.studies.study_files import list_studies

HERE = Path(__file__).parent
ENGINE = HERE / "results" / "attack_engine_vit_linf.json"
GPUS = [2**power for power in range(11)]
FLEETS: dict[str, dict[str, float]] = {
    "all equal": {},
    "5 % of the workers take twice as long": {"slow_share": 0.05, "slow_factor": 2.0},
    "and a failure per 100 worker-hours": {"slow_share": 0.05, "slow_factor": 2.0, "failures_per_hour": 0.01},
    "and a failure per 10 worker-hours": {"slow_share": 0.05, "slow_factor": 2.0, "failures_per_hour": 0.1},
}
CHECKPOINT_S = 90.0  # of a training: written every 60 s, sent to the driver every 30 s
MODEL = ("model=vit_digits", "data=digits", "suite=clean", "n=64", "batch_size=16", "chunk_size=16")
ATTACK = ("suite=autoattack", "tier=verified", "threat=linf:0.1", "n=64", "batch_size=8", "chunk_size=8")
NOTES = [
    "Four workers on two cores cannot be faster than two: the row shows the cost of too many workers, not a gain.",
    "In an evaluation all pieces have the same number of images, so that they are expected to take the same time, and "
    "the order of the schedule is the plain order.",
    "The time of an image was measured with 1,000 images at once. Pieces of a few images of 32 pixels do not fill a "
    "GPU: for cifar10 the efficiency beyond about 16 GPUs is an upper bound.",
    "A training uses one GPU. The longest chain of trainings bounds the time of the study.",
]


class Task(NamedTuple):
    """A job for the simulation: spans, what they are expected to take, by order, and what they need."""

    spans: list[Span]
    seconds: Callable[[Span], float]
    orders: dict[str, Callable[[Span], float]]
    needs: Callable[[Span], Sequence[int]] = lambda span: ()
    kept_every_s: float | None = None


# ---------------------------------------------------------------- measured


def timed(words: Sequence[str], folder: Path) -> tuple[float, list[list[tuple[int, float, float]]]]:
    """Wall time of a command in a fresh process, and the times of its pieces, by job."""
    folder.mkdir(parents=True)
    file = folder / "pieces.json"
    command = [sys.executable, str(HERE / "scale_timed.py"), str(file), *words, f"output={folder / 'run'}"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    environment.pop("OMP_NUM_THREADS", None)
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return round(time.monotonic() - began, 2), json.loads(file.read_text())


def measured(place: Path, *, quick: bool, turns: int) -> dict[str, Any]:
    """1, 2 and 4 workers on this machine; the best of several turns, since other processes may run beside them."""
    words: Sequence[str] = ("evaluate", *MODEL)
    _, jobs = timed([*words, "workers=2"], place / "clean")
    startup_s = round(max(finished for _, _, finished in jobs[0]), 2)
    if not quick:
        train = ["train", "digits/trades", f"output={place / 'model'}"]
        subprocess.run([sys.executable, "-m", "hardtack", *train], check=True, capture_output=True)
        words = ("evaluate", str(place / "model"), *ATTACK)
    rows: list[dict[str, Any]] = []
    for workers in (1,) if quick else (1, 2, 4):
        load = os.getloadavg()[0]
        found = [timed([*words, f"workers={workers}"], place / f"w{workers}-{turn}") for turn in range(turns)]
        wall_s, jobs = min(found, key=lambda each: each[0])
        pieces = jobs[0]
        rows.append({
            "workers": workers, "wall_s": wall_s, "walls_s": [each[0] for each in found],
            "pieces_s": round(max(piece[2] for piece in pieces), 2),
            "simulated_s": round(replayed(pieces, workers, startup_s), 2),
            "load_before": round(load, 1), "pieces": pieces,
        })  # fmt: skip
        rows[-1]["times_one_worker"] = round(rows[0]["wall_s"] / wall_s, 2)
        print({key: value for key, value in rows[-1].items() if key != "pieces"}, flush=True)
    shown = [word if str(place) not in word else "RUN" for word in words]
    return {
        "command": f"hardtack {' '.join(shown)} workers=N", "device": f"{os.cpu_count()} CPU cores",
        "startup_s": startup_s, "rows": rows, "columns_of_pieces": ["first row", "handed out, s", "finished, s"],
    }  # fmt: skip


def replayed(pieces: Sequence[tuple[int, float, float]], workers: int, startup_s: float) -> float:
    """The simulated time of a job whose pieces took as long as those that were measured.

    The first piece of a worker process may be handed out before the process is ready.
    """
    waits = startup_s if workers > 1 else 0.0
    seconds = {Span(row, row + 1): max(0.0, end - max(begin, waits)) for row, begin, end in pieces}
    schedule = Schedule(list(seconds), expected=lambda span: 0.0)
    return simulate(schedule, seconds.__getitem__, Fleet(workers=workers, startup_s=waits)).wall_s


# ---------------------------------------------------------------- simulated


def evaluation(images: int, image_s: float, robust: float, gpus: int, *, each: int = PIECES_PER_WORKER) -> Task:
    """The pieces of one evaluation: their sizes as `run_job` cuts them on a GPU, their times by who is robust."""
    spans = missing_spans([], images, max(1, -(-images // (gpus * each))))
    rng = random.Random(0)
    whole = image_s / robust  # an image that is not broken
    seconds = {span: whole * sum(rng.random() < robust for _ in range(span.rows)) for span in spans}
    orders: dict[str, Callable[[Span], float]] = {
        "longest first": lambda span: float(span.rows), "plain": lambda span: 0.0,
        "longest first, times known": seconds.__getitem__,
    }  # fmt: skip
    return Task(spans, seconds.__getitem__, orders)


def study(names: Sequence[str], scale: str) -> tuple[Task, dict[str, Any]]:
    """All runs of these studies, each once, and what they come to."""
    runs = {run.digest: run for name in names for run in plan_study(name, {"scale": scale}).runs}
    numbers = {digest: number for number, digest in enumerate(runs)}
    seconds = [(run.training + run.evaluation) / H200 for run in runs.values()]
    needs = [tuple(numbers[need] for need in run.needs if need in numbers) for run in runs.values()]
    length, chain = [1.0] * len(runs), list(seconds)  # in runs and in seconds, itself counted
    for number in reversed(range(len(runs))):
        for need in needs[number]:
            length[need] = max(length[need], 1 + length[number])
            chain[need] = max(chain[need], seconds[need] + chain[number])
    orders: dict[str, Callable[[Span], float]] = {
        "longest chain of runs first": lambda span: length[span.start], "plain": lambda span: 0.0,
        "longest chain of hours first": lambda span: chain[span.start],
    }  # fmt: skip
    spans = [Span(number, number + 1) for number in range(len(runs))]
    facts = {
        "trainings": len(runs), "with_needs": sum(map(bool, needs)), "gpu_hours": round(sum(seconds) / 3600, 1),
        "longest_training_hours": round(max(seconds) / 3600, 2), "longest_chain_hours": round(max(chain) / 3600, 2),
    }  # fmt: skip
    task = Task(spans, lambda s: seconds[s.start], orders, lambda s: needs[s.start], kept_every_s=CHECKPOINT_S)
    return task, facts


def row(task: Task, order: str, fleet: Fleet, seeds: int) -> dict[str, Any]:
    """Medians over seeds. `stopped` counts seeds where a piece was lost so often that the job gave up."""
    done = []
    for seed in range(seeds if fleet.slow_share or fleet.failures_per_hour else 1):
        schedule = Schedule(task.spans, expected=task.orders[order], needs=task.needs)
        try:
            done.append(simulate(schedule, task.seconds, fleet, seed=seed))
        except UserError:
            done.append(None)
    ended = [each for each in done if each is not None]
    result: dict[str, Any] = {"order": order, "gpus": fleet.workers}
    if len(ended) < len(done):
        result["stopped"] = f"{len(done) - len(ended)} of {len(done)} seeds"
    if ended:
        wall, busy, lost = (
            statistics.median(getattr(each, name) for each in ended) for name in ("wall_s", "busy_s", "lost_s")
        )
        result |= {
            "wall_s": round(wall, 1), "busy_gpu_hours": round(busy / 3600, 3), "lost_gpu_hours": round(lost / 3600, 4),
            "lost_pieces": statistics.median(each.lost_pieces for each in ended),
            "efficiency": round(statistics.median(each.efficiency for each in ended), 3),
        }  # fmt: skip
    return result


def rows(
    make: Callable[[int], Task], gpus: Sequence[int], seeds: int, startup_s: float
) -> dict[str, list[dict[str, Any]]]:
    """By fleet: every number of GPUs in every order."""
    table: dict[str, list[dict[str, Any]]] = {}
    for name, settings in FLEETS.items():
        for count in gpus:
            task = make(count)
            fleet = Fleet(workers=count, startup_s=startup_s, kept_every_s=task.kept_every_s, **settings)  # type: ignore[arg-type]
            table.setdefault(name, []).extend(row(task, order, fleet, seeds) for order in task.orders)
    return table


def simulated(*, quick: bool, seeds: int) -> dict[str, Any]:
    gpus = [1, 8, 64] if quick else GPUS
    engine = json.loads(ENGINE.read_text())
    run = engine["tiers"]["verified"]
    image_s, robust = run["seconds"] / run["n"], run["robust_accuracy"]
    startup_s = round(engine["tiers"]["verified, fresh process"]["fresh_s"] - run["seconds"], 2)
    small, large = (model_facts(name).gflops for name in ("vit_tiny_patch4_32", "vit_small_patch16_224"))
    found: dict[str, Any] = {"startup_s": startup_s, "assumed": FLEETS, "seeds": seeds, "evaluation": {}}
    for name, images, factor in (("cifar10", 10_000, 1.0), ("imagenet", 50_000, large / small)):
        cut = [images, image_s * factor, robust]
        found["evaluation"][name] = {
            "images": images, "image_s": round(cut[1], 5), "robust": robust,
            "gpu_hours": round(images * cut[1] / 3600, 3),
            "by_fleet": rows(lambda count, cut=cut: evaluation(*cut, count), gpus, seeds, startup_s),  # type: ignore[misc]
        }  # fmt: skip
        print(name, "simulated", flush=True)
    fleet = Fleet(workers=64, startup_s=startup_s, **FLEETS["and a failure per 100 worker-hours"])  # type: ignore[arg-type]
    found["evaluation"]["imagenet on 64 GPUs by pieces per worker"] = [
        {"pieces_per_worker": each, **row(evaluation(*cut, 64, each=each), "longest first", fleet, seeds)}  # type: ignore[arg-type]
        for each in (1, 2, 4, 8, 16)
    ]
    names, scale = (["cauchy/table1"], "smoke") if quick else (list_studies(), "paper")
    task, facts = study(names, scale)
    found["study"] = {
        "studies": len(names), "scale": scale, **facts, "checkpoint_s": CHECKPOINT_S,
        "by_fleet": rows(lambda count: task, gpus, seeds, startup_s),
    }  # fmt: skip
    return found


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    reads.add_argument("--turns", type=int, default=2, help="of each measurement; the fastest counts")
    reads.add_argument("--simulate", action="store_true", help="simulate again; what --output has measured is kept")
    reads.add_argument("--seeds", type=int, default=5)
    reads.add_argument("--output", type=Path)
    given = reads.parse_args()
    turns, seeds = (1, 1) if given.quick else (given.turns, given.seeds)
    options = [word for word in sys.argv[1:] if word == "--quick" or word.split("=")[0] in ("--turns", "--seeds")]
    record: dict[str, Any] = {
        "command": f"python benchmarks/scale.py {' '.join(options)}".strip(),
        "date": datetime.date.today().isoformat(), "device": f"{os.cpu_count()} CPU cores; GPUs are simulated",
        "torch": torch.__version__, "notes": NOTES,
    }  # fmt: skip
    record["simulated"] = simulated(quick=given.quick, seeds=seeds)
    if given.simulate:
        kept = json.loads(given.output.read_text()) if given.output and given.output.exists() else {}
        record["measured"] = kept.get("measured")
    else:
        with tempfile.TemporaryDirectory(prefix="scale-") as place:
            record["measured"] = measured(Path(place), quick=given.quick, turns=turns)
    if given.output:
        given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
