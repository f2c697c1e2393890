"""Executor `ray`: pieces on the machines of a Ray cluster, in actors that keep the job loaded.

The job travels through the object store: weights, the user's files and images that are in memory. Results come back to
the driver, which alone writes, so that no disk is shared. Images on the driver's disk are read by the actors through
the driver's machine, unless there is only one machine or `ray.shared_disk=true` says that all of them see the files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor
from hardtack.engine.executors.here import PIECES_PER_WORKER, WorkerFault
from hardtack.engine.executors.ray_actor import ImageServer, PieceActor, ServedImages
from hardtack.engine.executors.ray_connection import Connection, free, lost_errors
from hardtack.engine.job import Job
from hardtack.engine.mirror import read_folders, write_files
from hardtack.engine.packing import check_versions, pack, versions
from hardtack.engine.pieces import Span
from hardtack.engine.schedule import ATTEMPTS, Schedule
from hardtack.engine.store import Store

SYNC_S = float(os.environ.get("HARDTACK_SYNC_S", 30.0))  # between two looks at what actors have written
_PATIENCE_S = 20.0  # before it is said that the cluster gives no actor


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Settings of `--on ray`.

    address       of the cluster; null: $RAY_ADDRESS, else the one that this machine is part of, else local: a new one
                  of this machine alone, for this command
    workers       actors; null: as many as the cluster has room for
    per_gpu       actors that share one GPU
    gpus          GPUs of one actor; null: 1/per_gpu where the cluster has any
    cpus          CPU cores of one actor
    shared_disk   whether all machines see the files of this one under the same paths
    """

    address: str | None = None
    workers: Annotated[int, Field(ge=1)] | None = None
    per_gpu: Annotated[int, Field(ge=1)] = 1
    gpus: Annotated[float, Field(ge=0)] | None = None
    cpus: Annotated[float, Field(gt=0)] = 1.0
    shared_disk: bool = False


@executors.register("ray", help="actors on a Ray cluster: `--on ray`, `--on ray:ADDRESS`")
class RayExecutor(Executor):
    """Hands pieces to actors one by one; what a dead actor was computing is handed to another."""

    settings = RaySettings
    pieces_per_worker = PIECES_PER_WORKER

    def __init__(self, runtime: Runtime, settings: RaySettings | None = None) -> None:
        super().__init__()
        self.chosen = settings or RaySettings()
        self.connection = Connection(self.chosen.address)
        self.ray = self.connection.ray
        try:
            resources = self.ray.cluster_resources()
            self.gpus, self.workers = actor_share(self.chosen, resources, on_cpu=runtime.device == "cpu")
        except UserError:
            self.connection.close()
            raise
        self.started = 0  # actors, replacements among them
        self._packed: Any = None
        self._actors: list[_Actor] = []
        self._servers: list[Any] = []

    # ------------------------------------------------------------ the job

    def prepare(self, job: Job) -> None:
        apart = len([node for node in self.ray.nodes() if node["Alive"]]) > 1 and not self.chosen.shared_disk
        steps, packed = pack(job.travels(self._serve) if apart else job, self.steps())
        self._packed = (versions(), self.ray.put(steps), self.ray.put(packed))

    def _serve(self, images: Any) -> ServedImages:
        """A stand-in for images on this machine's disk that can be read from every machine of the cluster."""
        name = f"hardtack-images-{os.getpid()}-{len(self._servers)}-{time.time_ns()}"
        node = self.ray.get_runtime_context().get_node_id()
        here = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        server = self.ray.remote(ImageServer).options(
            name=name, num_cpus=0, scheduling_strategy=here, max_concurrency=8
        )
        self._servers.append(server.remote(images))
        return ServedImages(name, len(images))

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        if not spans:
            return
        schedule = Schedule(spans, expected=job.expected, needs=job.needs)
        with Meter(job.title, total=len(spans), quiet=quiet, unit=job.unit) as meter:
            for actor in self._actors:
                actor.load(self._packed)
            while len(self._actors) < min(self.workers, len(spans)):
                self._actors.append(self._new_actor())
            loop = _Loop(self, job, schedule, store, meter)
            while not schedule.done:
                loop.hand_out()
                loop.listen()
        for actor in self._actors:
            actor.calls.clear()

    def _new_actor(self) -> _Actor:
        self.started += 1
        options = {"num_cpus": self.chosen.cpus, "num_gpus": self.gpus, "max_concurrency": 3, "max_restarts": 0}
        make = self.ray.remote(PieceActor).options(**options).remote
        actor = _Actor(make(int(self.chosen.cpus), shares_gpu=0 < self.gpus < 1))
        actor.load(self._packed)
        return actor

    def replace(self, actor: _Actor) -> None:
        self.ray.kill(actor.handle)
        self._actors[self._actors.index(actor)] = self._new_actor()

    @property
    def actors(self) -> list[_Actor]:
        return self._actors

    def close(self) -> None:
        for actor in self._actors:
            self.ray.kill(actor.handle)
        for server in self._servers:
            self.ray.kill(server)
        self._actors, self._servers, self._packed = [], [], None
        self.connection.close()


class _Actor:
    """An actor, the calls to it that are not answered yet, and the piece that it computes."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.calls: dict[Any, str] = {}  # what each unanswered call asks for
        self.span: Span | None = None
        self.ready, self.note, self.share = False, "", 0.0

    def load(self, packed: Any) -> None:
        self.ready = False
        self.calls[self.handle.load.remote(*packed)] = "load"

    def compute(self, span: Span, files: Any) -> None:
        self.span = span
        self.calls[self.handle.run.remote(span, files)] = "piece"

    def ask(self, what: str) -> None:
        if what not in self.calls.values():
            self.calls[getattr(self.handle, what).remote()] = what

    def idle(self) -> None:
        self.span, self.note, self.share = None, "", 0.0


class _Loop:
    """The pieces of one job between the schedule, the actors and the store."""

    def __init__(self, executor: RayExecutor, job: Job, schedule: Schedule, store: Store, meter: Meter) -> None:
        self.executor, self.job, self.schedule, self.store, self.meter = executor, job, schedule, store, meter
        self.ray: Any = executor.ray
        self.began = self.synced = time.monotonic()
        self.told = False
        self.lost_in_a_row = 0  # actors that were lost before they had loaded the job

    def hand_out(self) -> None:
        for actor in self.executor.actors:
            if actor.ready and actor.span is None and (span := self.schedule.take()) is not None:
                actor.compute(span, self._files(span))

    def _files(self, span: Span) -> Any:
        """The folders that a piece works in, through the object store."""
        root = self.job.root
        return None if root is None else self.ray.put(read_folders(root, self.job.folders(span)))

    def listen(self) -> None:
        """Take in one answer, or ask how far the actors are."""
        calls = {call: actor for actor in self.executor.actors for call in actor.calls}
        answered, _ = self.ray.wait(list(calls), num_returns=1, timeout=1.0)
        for call in answered:
            self._answer(calls[call], call)
        if not answered:
            self._ask()

    def _ask(self) -> None:
        sync = self.job.root is not None and time.monotonic() - self.synced > SYNC_S
        for actor in self.executor.actors:
            if actor.span is not None:
                actor.ask("progress")
                if sync:
                    actor.ask("changes")
        self.synced = time.monotonic() if sync else self.synced
        waits = time.monotonic() - self.began > _PATIENCE_S and not any(actor.ready for actor in self.executor.actors)
        if waits and not self.told:
            self.told = True
            self.meter.say(f"the cluster has not started an actor yet; it has free: {free(self.ray)}")

    def _answer(self, actor: _Actor, call: Any) -> None:
        what = actor.calls.pop(call)
        try:
            kind, *content = self.ray.get(call)
            if what == "piece":
                self._take_changes(actor)
        except lost_errors(self.ray) as error:
            self._lose(actor, error)
            return
        if kind == "refused":
            raise UserError(content[0])
        if kind == "fault":
            raise WorkerFault(content[0])
        if what == "load":
            check_versions(content[0], f"the Ray worker on {content[1]}")
            actor.ready = True
            self.lost_in_a_row = 0
        elif what == "progress":
            actor.note, actor.share = content
            busy = [each for each in self.executor.actors if each.span is not None]
            if busy:
                self.meter.note(f"{len(busy)} actors: {busy[0].note}", sum(each.share for each in busy))
        elif what == "changes":
            self._write(content[0])
        else:
            span, result, files = content
            self._write(files)
            self.job.collect(span, result)
            self.store.write(span, result)
            self.schedule.finish(span)
            actor.idle()
            self.meter.advance(span.rows)

    def _take_changes(self, actor: _Actor) -> None:
        """Write what an unanswered call `changes` gives. It is older than the files of the finished piece, and must not
        be written after them; Ray gives answers in any order."""
        for call in [call for call, what in actor.calls.items() if what == "changes"]:
            del actor.calls[call]
            self._write(self.ray.get(call)[1])

    def _write(self, files: Any) -> None:
        if files and self.job.root is not None:
            write_files(self.job.root, files)

    def _lose(self, actor: _Actor, error: Exception) -> None:
        why = " ".join(str(error).split())[:200]
        with contextlib.suppress(*lost_errors(self.ray)):
            self._take_changes(actor)  # a checkpoint may have been sent before the loss
        if actor.span is not None:
            self.meter.say("a Ray actor was lost; its piece is computed again by another")
            self.schedule.lose(actor.span, f"its Ray actor was lost: {why}")
        elif not actor.ready:
            self.lost_in_a_row += 1
            if self.lost_in_a_row >= ATTEMPTS * max(1, len(self.executor.actors)):
                raise UserError(f"{self.lost_in_a_row} Ray actors were lost while they loaded the job, the last: {why}")
        self.executor.replace(actor)


def actor_share(chosen: RaySettings, resources: dict[str, float], *, on_cpu: bool = False) -> tuple[float, int]:
    """GPUs of one actor, and the number of actors."""
    there = resources.get("GPU", 0.0)
    computes_on_gpu = bool(there) and not on_cpu
    if chosen.per_gpu > 1 and chosen.gpus is not None:
        share = f"ray.gpus={1 / chosen.per_gpu:g}"
        raise UserError(f"per_gpu={chosen.per_gpu} means {share}: write per_gpu or ray.gpus, not both")
    if chosen.per_gpu > 1 and not computes_on_gpu:
        why = "with runtime.device=cpu" if there else "on a cluster without GPUs"
        raise UserError(f"per_gpu is for actors that compute on a GPU; {why} write workers=N, or ray.cpus=N")
    gpus = chosen.gpus if chosen.gpus is not None else (1 / chosen.per_gpu if computes_on_gpu else 0.0)
    if gpus > there:
        raise UserError(f"ray.gpus={gpus:g} for each actor, but the cluster has {there:g} GPUs")
    cores = resources.get("CPU", 0.0)
    if chosen.cpus > cores:
        raise UserError(f"ray.cpus={chosen.cpus:g} for each actor, but the cluster has {cores:g} CPU cores")
    room = int(min(there / gpus, cores / chosen.cpus)) if gpus else int(cores // chosen.cpus)
    return gpus, chosen.workers or max(1, room)
