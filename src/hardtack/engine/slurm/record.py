"""`jobs.json`: which arrays were submitted from a folder.

It is never believed alone. Whether a job is in the queue, and whether it is one of these tasks, is asked from squeue:
the job's name holds a digest of the tasks. The file serves to find arrays of *other* tasks that were submitted from the
same folder, and tells people which job ids to look for.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import MIB, read_json

FILE = "jobs.json"


@dataclass(frozen=True)
class Submitted:
    """One array that was submitted: its job id, the digest of its tasks, and which of them it holds."""

    job: int
    digest: str
    tasks: str
    at: str


def read_record(folder: Path) -> list[Submitted]:
    """The arrays submitted from this folder; entries that are damaged are left out."""
    try:
        values = read_json(folder / FILE, limit=MIB)
    except (OSError, UserError):
        return []
    entries = values.get("arrays") if isinstance(values, dict) else None
    return [entry for value in entries if (entry := _entry(value))] if isinstance(entries, list) else []


def _entry(value: Any) -> Submitted | None:
    if not isinstance(value, dict) or not isinstance(value.get("job"), int) or isinstance(value["job"], bool):
        return None
    digest, tasks, at = (value.get(name) for name in ("digest", "tasks", "at"))
    if isinstance(digest, str) and isinstance(tasks, str) and isinstance(at, str):
        return Submitted(value["job"], digest, tasks, at)
    return None


def add_to_record(folder: Path, *, job: int, digest: str, tasks: str) -> None:
    """Write down that an array was submitted."""
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    arrays = [*read_record(folder), Submitted(job, digest, tasks, now)]
    write_text(folder / FILE, json.dumps({"arrays": [asdict(entry) for entry in arrays[-1000:]]}, indent=1) + "\n")
