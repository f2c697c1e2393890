"""Which workers an executor would have, before any of them is started: for plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardtack.base.config import build
from hardtack.base.cores import usable_cores
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.engine.executors import here, ray, slurm
from hardtack.engine.executors.ray_connection import Connection

# seconds until a worker computes: a fresh process of an evaluation against one that is warm, on one H200
# (benchmarks/results/attack_engine_vit_linf.json), and a whole short command on a CPU (benchmarks/results/scale.json)
GPU_START_S, CPU_START_S = 7.5, 2.6


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The workers of one command.

    gpus, cores         of one worker; gpus=0: it computes on the CPU. Of a Slurm task that trains: of each node
    sharing             how many workers compute on one GPU or core: they are assumed to share its speed
    room                what there is, in words
    slurm               the settings of the tasks, where workers are tasks
    """

    name: str
    workers: int
    gpus: float
    cores: float
    sharing: float = 1.0
    pieces_per_worker: int = 1
    startup_s: float = 0.0
    room: str = ""
    slurm: slurm.SlurmExecutorSettings | None = None

    @property
    def threads(self) -> int | None:
        """CPU threads of a worker; None where it computes on a GPU."""
        return None if self.gpus else max(1, int(self.cores))


def crew_of(name: str, settings: Mapping[str, Any], runtime: Runtime, *, trains: bool = False) -> Crew:
    """The workers of `--on NAME`; `trains`: they train one model together."""
    if name not in CREWS:
        raise UserError(f"--on {name}: a plan knows the workers of {', '.join(CREWS)}")
    if trains and settings.get("per_gpu", 1) != 1:
        raise UserError(
            "per_gpu is for pieces of an evaluation or study: the processes of one training have a GPU each"
        )
    return CREWS[name](dict(settings), runtime, trains)


def _here(settings: dict[str, Any], runtime: Runtime, trains: bool) -> Crew:
    gpus = len(here.visible_gpus(runtime))
    workers = here.number_of_workers(build(here.HereSettings, settings), gpus=gpus)
    cores = usable_cores()
    return Crew(
        name="here", workers=workers, gpus=min(1.0, gpus / workers), cores=cores // workers or cores / workers,
        sharing=max(1.0, workers / (gpus or cores)), pieces_per_worker=here.PIECES_PER_WORKER if workers > 1 else 1,
        startup_s=_startup_s(gpus), room=f"this machine has {_amount(gpus, cores)}",
    )  # fmt: skip


def _ray(settings: dict[str, Any], runtime: Runtime, trains: bool) -> Crew:
    chosen: ray.RaySettings = build(ray.RaySettings, settings)
    connection = Connection(chosen.address)
    try:
        resources = connection.ray.cluster_resources()
        machines = sum(node["Alive"] for node in connection.ray.nodes())
    finally:
        connection.close()
    gpus, workers = ray.actor_share(chosen, resources, on_cpu=runtime.device == "cpu")
    _, most = ray.actor_share(dataclasses.replace(chosen, workers=None), resources, on_cpu=runtime.device == "cpu")
    if workers > most and trains:
        raise UserError(f"workers={workers}, but the cluster has room for {most}: a training needs all of them at once")
    room = f"the cluster has {_amount(resources.get('GPU', 0.0), resources.get('CPU', 0.0))} on {_machines(machines)}"
    return Crew(
        name="ray", workers=min(workers, most), gpus=gpus, cores=chosen.cpus, sharing=max(1.0, 1 / gpus if gpus else 1),
        pieces_per_worker=ray.PIECES_PER_WORKER, startup_s=_startup_s(gpus),
        room=room + (f", which is room for {most} of {workers} workers" if workers > most else ""),
    )  # fmt: skip


def _slurm(settings: dict[str, Any], runtime: Runtime, trains: bool) -> Crew:
    if trains and "workers" in settings:
        raise UserError("a training on Slurm takes slurm.nodes=N and slurm.gpus=N (of one node) instead of workers")
    chosen: slurm.SlurmExecutorSettings = build(slurm.SlurmExecutorSettings, settings)
    if not trains:
        slurm.SlurmExecutor(runtime, chosen)  # refuses what is for trainings only
    return Crew(
        name="slurm", workers=chosen.nodes * max(1, chosen.gpus) if trains else chosen.workers, gpus=chosen.gpus,
        cores=chosen.cpus or 1, pieces_per_worker=slurm.PIECES_PER_TASK, startup_s=_startup_s(chosen.gpus),
        slurm=chosen,
    )  # fmt: skip


CREWS = {"here": _here, "ray": _ray, "slurm": _slurm}


def _startup_s(gpus: float) -> float:
    return GPU_START_S if gpus else CPU_START_S


def _amount(gpus: float, cores: float) -> str:
    return f"{gpus:g} GPU{'s' * (gpus != 1)} and {cores:g} CPU core{'s' * (cores != 1)}"


def _machines(count: int) -> str:
    return f"{count} machine{'s' * (count != 1)}"
