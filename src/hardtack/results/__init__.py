"""What we know and how: records of measured numbers, the run folders they live in, and their tables."""

from hardtack.results.record import Paired, Result, comparable, from_json, paired, to_json, wilson
from hardtack.results.store import (
    ChunkStore,
    append_result,
    append_results,
    atomic,
    find_runs,
    read_arrays,
    read_metrics,
    read_results,
    read_verdicts,
    write_arrays,
    write_text,
    write_verdicts,
)

__all__ = [
    "ChunkStore",
    "Paired",
    "Result",
    "append_result",
    "append_results",
    "atomic",
    "comparable",
    "find_runs",
    "from_json",
    "paired",
    "read_arrays",
    "read_metrics",
    "read_results",
    "read_verdicts",
    "to_json",
    "wilson",
    "write_arrays",
    "write_text",
    "write_verdicts",
]
