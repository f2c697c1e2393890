"""One resumable engine for everything long: evaluations, analyses, corrupted copies of data sets.

A long job is a map over rows (images, points of a grid) whose results are on disk as soon as they exist. It can be
killed at any moment; the same call repeated goes on where it stopped and ends with the same result, to the bit.

Identity (`identity.py`). A job is named by a digest of everything its result depends on: settings, weights, images,
seed, version of hardtack. How the work is cut up (piece size, batch size, number of processes) is not part of it. Two
calls with one identity are the same job; a call with another identity never finds the pieces of the first.

Pieces (`pieces.py`). Rows are computed in spans `start … stop−1`. What is missing is cut anew at every call, so that
the piece size may change between two calls. A row does not depend on the piece it is in. Where two pieces hold the same
row, the first in order counts.

Lock (`base/lock.py`). Of several calls of one job at the same time, one computes; the others say who it is, wait, and
use its result. The lock of a process that has died is taken over. Different jobs in one folder do not wait for each
other.

Store (`store.py`). Each finished piece is one set of files in a hidden folder `.ID`: a parquet file with one value per
row, an npz file with arrays, and finished files that belong elsewhere (kept adversarial images). Files are written
whole and renamed into place; the file that says "complete" is written last. A long piece keeps notes of its state in a
`.part` file, so that a kill loses seconds, not the piece. A damaged piece is named on stderr and computed again. The
folder is removed when the job's final files are written. The layout of version 0.1.0 is read as well. A result that
need not be kept goes through a `MemoryStore` instead.

Executor (`executors/`). It decides which process computes which piece: `here` (this process, or worker processes on
this machine), `torchrun` (the ranks of one launch take every n-th missing piece, wait for each other, and rank 0 writes
the final files; ranks may be fewer or more in the next call), `ray` (actors on a cluster) or `slurm` (tasks of a job
array). Workers receive the job as a value (`packing.py`) and get pieces one by one (`schedule.py`); a piece whose
worker dies is computed again. An executor of another kind is one more file in the registry `executors`.

Job (`job.py`). The contract that connects them: `total` rows, `run` for one piece, `finish` for the result; `recall`
finds the result of a finished job. `run_job(job, store=…, executor=…)` (`run.py`) does the rest:

    class Squares(Job):
        total = 1000
        def run(self, span, inputs, *, notebook, meter):
            return PieceResult(columns={"square": np.arange(*span) ** 2})

    columns, _ = run_job(Squares(), store=PieceStore("run", "squares-1"), executor=Executor())
"""

from hardtack.engine.executors import Executor, choose_executor
from hardtack.engine.identity import job_id, tensor_digest
from hardtack.engine.job import Job
from hardtack.engine.pieces import PieceResult, Span, missing_spans
from hardtack.engine.run import run_job
from hardtack.engine.store import MemoryStore, Notebook, PieceStore, Store

__all__ = [
    "Executor", "Job", "MemoryStore", "Notebook", "PieceResult", "PieceStore", "Span", "Store", "choose_executor",
    "job_id", "missing_spans", "run_job", "tensor_digest",
]  # fmt: skip
