"""Executor `here`: this process, or several worker processes on this machine, one GPU each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Annotated, Any

import torch
from pydantic import Field

from hardtack.base.cores import give_share_of_cores, usable_cores
from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.base.shared_gpu import mark_gpu_as_shared
from hardtack.engine.executors.executor import Executor, run_pieces
from hardtack.engine.job import Job
from hardtack.engine.packing import check_versions, pack
from hardtack.engine.pieces import Span
from hardtack.engine.schedule import Schedule
from hardtack.engine.store import Store

PIECES_PER_WORKER = 4
_GRACE_S = 5.0  # for a worker to end by itself
# a worker is one process: what a launcher says about ranks does not concern it
_OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class HereSettings:
    """Settings of `--on here`.

    workers   processes that share the pieces; null: one for each GPU, or one
    per_gpu   processes that share one GPU
    """

    workers: Annotated[int, Field(ge=1)] | None = None
    per_gpu: Annotated[int, Field(ge=1)] = 1


@executors.register("here", help="this process, or `workers=N` processes on this machine, one GPU each")
class Here(Executor):
    """With one worker, this process computes every piece; with more, worker processes do, and this one keeps them.

    Pieces are handed out one by one. A worker that dies is replaced, and its piece is computed again.
    """

    settings = HereSettings

    def __init__(self, runtime: Runtime, settings: HereSettings | None = None) -> None:
        settings = settings or HereSettings(workers=1)
        super().__init__()
        self.runtime = runtime
        self.gpus = visible_gpus(runtime)
        self.workers = number_of_workers(settings, gpus=len(self.gpus))
        self.pieces_per_worker = PIECES_PER_WORKER if self.workers > 1 else 1
        self._packed: tuple[bytes, bytes] = (b"", b"")
        self._workers: list[Worker] = []
        self.started = 0  # worker processes, replacements among them

    def prepare(self, job: Job) -> None:
        if self.workers > 1:
            self._packed = pack(job, self.steps())

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        if self.workers == 1 or (len(spans) == 1 and not self._workers):
            run_pieces(job, spans, store, quiet=quiet)
            return
        schedule = Schedule(spans, expected=job.expected, needs=job.needs)
        with Meter(job.title, total=len(spans), quiet=quiet, unit=job.unit) as meter:
            self._start(min(self.workers, len(spans)))
            while not schedule.done:
                for worker in self._workers:
                    if worker.span is None and (span := schedule.take()) is not None:
                        worker.send(span, store)
                self._listen(job, schedule, store, meter)
        self._forget_job()

    def _start(self, count: int) -> None:
        while len(self._workers) < count:
            self._workers.append(self._new_worker(len(self._workers)))
        for worker in self._workers:
            worker.give(self._packed)

    def _new_worker(self, number: int) -> Worker:
        self.started += 1
        gpu = self.gpus[number % len(self.gpus)] if self.gpus else None
        shared = gpu is not None and self.workers > len(self.gpus)
        return Worker(number, gpu=gpu, threads=max(1, usable_cores() // self.workers), shared=shared)

    def _listen(self, job: Job, schedule: Schedule, store: Store, meter: Meter) -> None:
        """Take in what workers have sent, or notice that one is gone."""
        ready = wait([worker.pipe for worker in self._workers], timeout=1.0)
        for worker in [worker for worker in self._workers if worker.pipe in ready]:
            try:
                kind, *content = worker.pipe.recv()
            except (EOFError, OSError, ConnectionError):
                self._replace(worker, schedule, meter)
                continue
            if kind == "hello":
                check_versions(content[0], f"worker process {worker.process.pid}")
            elif kind == "note":
                worker.note, worker.share = content
                meter.note(self._notes(schedule), sum(each.share for each in self._workers))
            elif kind == "done":
                span, result = content
                job.collect(span, result)
                store.write(span, result)
                schedule.finish(span)
                worker.idle()
                meter.advance(span.rows)
            elif kind == "refused":
                raise UserError(content[0])
            else:
                raise WorkerFault(content[0])

    def _notes(self, schedule: Schedule) -> str:
        """What all workers are doing, in one line."""
        notes = [worker.note for worker in self._workers if worker.span is not None]
        return f"{len(schedule.running)} workers: {notes[0]}" if notes else ""

    def _replace(self, worker: Worker, schedule: Schedule, meter: Meter) -> None:
        why = worker.death()
        if worker.span is not None:
            meter.say(f"worker process {worker.process.pid} {why}; its piece is computed again by another")
            schedule.lose(worker.span, f"its worker process {why}")
        place = self._workers.index(worker)
        self._workers[place] = self._new_worker(worker.number)
        self._workers[place].give(self._packed)

    def _forget_job(self) -> None:
        self._packed = (b"", b"")

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []


class WorkerFault(RuntimeError):
    """An error in a worker that is nobody's mistake; the text is the traceback there."""

    def __str__(self) -> str:
        lines = str(self.args[0]).strip().splitlines()
        return f"{lines[-1]} (in a worker process)" if lines else "a worker process failed"


class Worker:
    """A worker process and the piece that it computes."""

    def __init__(self, number: int, *, gpu: str | None, threads: int, shared: bool = False) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "hardtack.engine.worker", str(theirs.fileno()), str(os.getpid())]
        environment = worker_environment(os.environ, gpu=gpu, threads=threads, shared=shared)
        with _without_interrupts():
            self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], stdout=2)
        theirs.close()
        self.pipe = Connection(ours.detach())
        self.number, self.note, self.share = number, "", 0.0
        self.span: Span | None = None

    def give(self, packed: tuple[bytes, bytes]) -> None:
        self._send(("job", packed))

    def send(self, span: Span, store: Store) -> None:
        self.span = span
        self._send(("piece", span, store.notebook(span)))

    def _send(self, message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # it has ended: reading from it will tell
            self.pipe.send(message)

    def idle(self) -> None:
        self.span, self.note, self.share = None, "", 0.0

    def death(self) -> str:
        """How the process ended, for a message."""
        try:
            code = self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.pipe.close()
        if code < 0:
            name = signal.Signals(-code).name
            memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
            return f"was killed by {name}{memory}"
        return f"ended with exit code {code}"

    def close(self) -> None:
        self.pipe.close()
        if self.span is not None:  # in the middle of a piece that nobody wants any more
            self.process.kill()
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started inside does not hear Ctrl-C, not even while it imports: its driver ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_environment(
    environment: Mapping[str, str], *, gpu: str | None, threads: int, shared: bool = False
) -> dict[str, str]:
    """The environment of a worker: one GPU, its share of the cores, and nothing of a launcher's."""
    own = {name: value for name, value in environment.items() if name not in _OF_LAUNCHERS}
    give_share_of_cores(own, threads)
    if shared:
        mark_gpu_as_shared(own)
    own.setdefault("OMP_NUM_THREADS", str(threads))  # the user's own choice counts: threads change the last bits
    return own if gpu is None else {**own, "CUDA_VISIBLE_DEVICES": gpu}


def visible_gpus(runtime: Runtime) -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` writes them; none for device=cpu."""
    if runtime.device not in ("auto", "cuda") or not torch.cuda.is_available():
        return []
    named = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    count = torch.cuda.device_count()
    return named[:count] if named else [str(number) for number in range(count)]


def number_of_workers(settings: HereSettings, *, gpus: int) -> int:
    """As many as asked for; one for each GPU, or `per_gpu` of them, where nothing was said."""
    if settings.per_gpu > 1 and not gpus:
        raise UserError("per_gpu is for machines with a GPU; on a CPU write workers=N")
    room = gpus * settings.per_gpu
    workers = settings.workers or max(1, room)
    if gpus and workers > room:
        plural = "s" if gpus > 1 else ""
        raise UserError(
            f"workers={workers} on {gpus} GPU{plural}: add per_gpu={-(-workers // gpus)} to let several share a GPU"
        )
    return workers
