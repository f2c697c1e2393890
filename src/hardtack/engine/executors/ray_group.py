"""A process group on a Ray cluster: Ray Train starts the processes of one training, and starts them again after a loss.

The run folder is on the driver's disk only. Every process works in a copy of it. What the first process writes comes
back every few seconds through the actor `FolderKeeper`; a group that is started again begins with what has come back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from hardtack.base.errors import UserError
from hardtack.base.lock import JobLock, hold
from hardtack.base.lost_process import LostProcess
from hardtack.base.progress import Meter, told_to
from hardtack.base.runtime import Runtime
from hardtack.engine.executors import ray as executor_ray
from hardtack.engine.executors.here import WorkerFault
from hardtack.engine.executors.ray import RaySettings, actor_share
from hardtack.engine.executors.ray_connection import Connection, free, lost_errors
from hardtack.engine.mirror import Files, Mirror, read_folders, write_files
from hardtack.engine.packing import Step, check_versions, pack, unpack, versions
from hardtack.engine.schedule import ATTEMPTS

_POLL_S = 0.5
_PATIENCE_S = 20.0  # before it is said that the cluster has not started the group


class GroupWork(Protocol):
    """What every process of a group does, in a copy of the run folder; pickled on its way there."""

    @property
    def title(self) -> str: ...

    def run(self, folder: Path) -> None: ...


def run_group(
    work: GroupWork,
    settings: RaySettings,
    runtime: Runtime,
    *,
    folder: Path,
    steps: Sequence[Step],
    lock: JobLock | None = None,
    quiet: bool = False,
) -> int:
    """Do the work in a group of processes on the cluster; its files are in `folder` then. Returns how many starts.

    `lock`: held from the moment that the folder is read.
    """
    connection = Connection(settings.address)
    ray = connection.ray
    _quieten()
    keeper, held = None, contextlib.ExitStack()
    try:
        resources, on_cpu = ray.cluster_resources(), runtime.device == "cpu"
        gpus, workers = actor_share(settings, resources, on_cpu=on_cpu)
        _, room = actor_share(dataclasses.replace(settings, workers=None), resources, on_cpu=on_cpu)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id=ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "scheduling_strategy": here, "max_concurrency": 4}
        held.enter_context(hold(lock))
        folder.mkdir(parents=True, exist_ok=True)
        keeper = ray.remote(FolderKeeper).options(**options).remote(read_folders(folder, [folder]))
        config = {
            "keeper": keeper,
            "work": pack(work, steps),
            "cwd": os.getcwd(),
            "data": os.environ.get("HARDTACK_DATA"),
        }
        config["sync_s"] = executor_ray.SYNC_S
        share = {"CPU": settings.cpus, **({"GPU": gpus} if gpus else {})}
        with (
            tempfile.TemporaryDirectory(prefix="hardtack-ray-") as storage,
            Meter(work.title, total=1, quiet=quiet) as meter,
            _collected(ray, keeper, folder, meter, workers) as collector,
        ):
            if workers > room:
                meter.say(f"the cluster has room for {room} of {workers} processes: waiting for more machines")
            error = _fit(config, workers=workers, share=share, storage=storage, on_gpu=gpus > 0)
            collector.finish()
        collector.raise_for(error, workers=workers)
        return collector.starts
    finally:
        if keeper is not None:
            ray.kill(keeper)
        held.close()
        connection.close()


def _fit(
    config: dict[str, Any], *, workers: int, share: dict[str, float], storage: str, on_gpu: bool
) -> Exception | None:
    """Ray Train's own loop; returns its error."""
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise UserError(f"train --on ray needs Ray Train: pip install 'hardtack[ray]' ({error})") from None

    class Trainer(TorchTrainer):
        def _register_sigint_handler(self, controller: Any) -> None:
            """Not Ray Train's: while the group waits for machines, it answers the third Ctrl-C only."""

    trainer = Trainer(
        _process,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=on_gpu, resources_per_worker=share),
        run_config=RunConfig(
            name="hardtack", storage_path=storage, failure_config=FailureConfig(max_failures=ATTEMPTS - 1)
        ),
        torch_config=TorchConfig(backend="nccl" if on_gpu else "gloo"),
    )
    try:
        trainer.fit()
    except SystemExit:  # how other versions of Ray Train answer Ctrl-C
        raise KeyboardInterrupt from None
    except Exception as error:
        return error
    return None


def _quieten() -> None:
    """Ray Train tells about its own work; what the user wants to know is told by the collector."""
    for name in ("ray.train", "ray.tune", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


# ---------------------------------------------------------------- between the group and the driver


class FolderKeeper:
    """An actor on the driver's machine with the newest files of the run folder, and with what is to be told."""

    def __init__(self, files: Files) -> None:
        self._files = {name: content for name, content in files.items() if content is not None}
        self._changes: dict[str, bytes | None] = {}
        self._lines: list[str] = []
        self._note: tuple[str, float] = ("", 0.0)
        self._refused = self._fault = ""
        self._starts = 0
        self._lock = threading.Lock()

    def join(self, rank: int, theirs: dict[str, str], host: str) -> None:
        """A process of the group begins; one with other versions is refused."""
        with self._lock:
            self._starts += rank == 0
            try:
                check_versions(theirs, f"the Ray worker on {host}")
            except UserError as error:
                self._refused = str(error)

    def refused(self) -> bool:
        return bool(self._refused)

    def files(self) -> Files:
        with self._lock:
            return dict(self._files)

    def put(self, changes: Files) -> None:
        """Files that the first process has written since its last call."""
        with self._lock:
            self._changes.update(changes)
            for name, content in changes.items():
                if content is None:
                    self._files.pop(name, None)
                else:
                    self._files[name] = content

    def tell(self, lines: Sequence[str], text: str, share: float) -> None:
        with self._lock:
            self._lines += lines
            self._note = (text, share) if text else self._note

    def refuse(self, message: str) -> None:
        """A mistake of the user's, which another attempt would repeat."""
        self._refused = self._refused or message

    def fail(self, trace: str) -> None:
        self._fault = trace

    def take(self) -> dict[str, Any]:
        """Everything since the last call."""
        with self._lock:
            taken = {
                "changes": self._changes, "lines": self._lines, "note": self._note, "starts": self._starts,
                "refused": self._refused, "fault": self._fault,
            }  # fmt: skip
            self._changes, self._lines = {}, []
        return taken


class _Collector:
    """In the driver: writes what comes back, shows what is told, and knows how it ended."""

    def __init__(self, ray: Any, keeper: Any, folder: Path, meter: Meter, workers: int) -> None:
        self.ray, self.keeper, self.folder, self.meter, self.workers = ray, keeper, folder, meter, workers
        self.starts, self.refused, self.fault = 0, "", ""
        self.error: BaseException | None = None
        self._began, self._told = time.monotonic(), False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name="collect the run folder")
        self._thread.start()

    def _loop(self) -> None:
        try:
            while not self._over.wait(_POLL_S):
                self._take()
        except BaseException as error:  # raised again in the main thread
            self.error = error

    def _take(self) -> None:
        try:
            taken = self.ray.get(self.keeper.take.remote())
        except lost_errors(self.ray) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"the Ray cluster of the training was lost ({reason}). The last saved state is kept: repeat the "
                "command to continue"
            ) from None
        write_files(self.folder, taken["changes"])
        for line in taken["lines"]:
            self.meter.say(line)
        text, share = taken["note"]
        self.meter.note(f"{self.workers} processes: {text}" if text else "starting", share)
        if taken["starts"] > max(self.starts, 1) and not taken["refused"]:
            self.meter.say("a process of the training was lost: all start again from the last saved state")
        self.starts, self.refused, self.fault = taken["starts"], taken["refused"], taken["fault"]
        if not self.starts and not self._told and time.monotonic() - self._began > _PATIENCE_S:
            self._told = True
            self.meter.say(f"the cluster has not started {self.workers} processes yet; it has free: {free(self.ray)}")

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def finish(self) -> None:
        """The last files."""
        self.stop()
        if self.error is None:
            try:
                self._take()
            except UserError as error:
                self.error = error

    def raise_for(self, error: Exception | None, *, workers: int) -> None:
        if self.error is not None:
            raise self.error
        if self.refused:
            raise UserError(self.refused)
        if error is None:
            return
        if self.fault:
            raise WorkerFault(self.fault)
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"the training on {workers} Ray workers was lost {max(self.starts, 1)} times, the last time because: "
            f"{reason}. The last saved state is kept: repeat the command to continue"
        )


@contextlib.contextmanager
def _collected(ray: Any, keeper: Any, folder: Path, meter: Meter, workers: int) -> Iterator[_Collector]:
    collector = _Collector(ray, keeper, folder, meter, workers)
    try:
        yield collector
    finally:
        collector.stop()


# ---------------------------------------------------------------- in the processes of the group


def _process(config: dict[str, Any]) -> None:
    """One process; Ray Train has set RANK and WORLD_SIZE and made the process group."""
    import ray
    import torch

    keeper, rank = config["keeper"], int(os.environ["RANK"])
    ray.get(keeper.join.remote(rank, versions(), socket.gethostname()))
    if torch.distributed.is_initialized():  # after this, all have joined
        torch.distributed.barrier()
    if ray.get(keeper.refused.remote()):
        return
    if Path(config["cwd"]).is_dir():
        os.chdir(config["cwd"])  # settings may hold relative paths
    if config["data"]:
        os.environ.setdefault("HARDTACK_DATA", config["data"])
    try:
        _work(config, keeper, ray, is_first=rank == 0)
    except LostProcess:
        raise  # the group is started again
    except UserError as error:
        ray.get(keeper.refuse.remote(str(error)))
        raise
    except Exception:
        ray.get(keeper.fail.remote(traceback.format_exc()))
        raise


def _work(config: dict[str, Any], keeper: Any, ray: Any, *, is_first: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="hardtack-") as place:
        folder = Path(place)
        write_files(folder, ray.get(keeper.files.remote()))
        work: Any = unpack(config["work"])
        if not is_first:
            work.run(folder)
            return
        with _sent_back(Mirror(folder), keeper, ray, every_s=config["sync_s"]), told_to(_Listener(keeper)):
            work.run(folder)


@contextlib.contextmanager
def _sent_back(mirror: Mirror, keeper: Any, ray: Any, *, every_s: float) -> Iterator[None]:
    """Send back what is written, at times and at the end."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(every_s):
            ray.get(keeper.put.remote(mirror.changes()))

    thread = threading.Thread(target=send, daemon=True, name="send the run folder back")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        ray.get(keeper.put.remote(mirror.changes()))


class _Listener:
    """Progress of the first process on its way to the driver; nobody waits for an answer."""

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper

    def note(self, text: str, share: float) -> None:
        self.keeper.tell.remote([], text, share)

    def say(self, line: str) -> None:
        self.keeper.tell.remote([line], "", 0.0)
