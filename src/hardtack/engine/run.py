"""`run_job`: one job from its identity on disk to its result."""

from __future__ import annotations

from typing import Any

from hardtack.base.allocator import keep_freed_memory
from hardtack.base.errors import UserError
from hardtack.base.lock import hold
from hardtack.base.lost_process import explain_lost_process
from hardtack.engine.executors.executor import Executor
from hardtack.engine.job import Job
from hardtack.engine.pieces import missing_spans
from hardtack.engine.store import Store


def run_job(job: Job, *, store: Store, executor: Executor, quiet: bool = False) -> Any:
    """The job's result: recalled if it was finished before, else from the pieces on disk and those computed now."""
    with explain_lost_process(executor.workers, "Finished pieces are kept"):
        executor.join()
        executor.wait()  # until the main process has written its last result: all processes must recall, or none
        if (result := job.recall()) is not None:
            return result
        keep_freed_memory()
        executor.prepare(job)
        with job.session():
            job.begin()
            lock = store.lock(job.title) if executor.is_main and executor.takes_lock else None
            with hold(lock, executor.share) as waited:
                if waited and (result := job.recall()) is not None:
                    return result
                return _compute(job, store, executor, quiet=quiet)


def _compute(job: Job, store: Store, executor: Executor, *, quiet: bool) -> Any:
    """The result from the pieces on disk and those that are missing."""
    shares = executor.workers * executor.pieces_per_worker
    size = max(1, job.piece_size(max(1, -(-job.total // shares))))
    executor.wait()  # all processes must see the same pieces on disk before one of them adds to them
    missing = missing_spans(store.spans(), job.total, size)
    if executor.is_main:
        store.announce(job.title, job.unit, total=job.total, done=job.total - sum(span.rows for span in missing))
    executor.wait()
    executor.run(job, missing, store, quiet=quiet)
    executor.wait()
    if missing_spans(store.spans(), job.total, size):
        if (result := job.recall()) is not None:  # another call of the same job was faster, and removed the pieces
            store.discard()
            return result
        raise UserError(f"pieces of {job.title} are missing on disk: all processes must write to the same disk")
    columns, arrays = store.read() if job.joins_pieces else ({}, {})
    executor.wait()
    result = job.finish(columns, arrays, is_main=executor.is_main)
    if executor.is_main:
        store.discard()
    executor.wait()
    return result
