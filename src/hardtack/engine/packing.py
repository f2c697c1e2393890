"""A job on its way to another process: packed by the process that drives the job, unpacked by its workers.

Packed jobs travel through a pipe or the object store of a cluster, from the driver to workers that it started itself.
They are never written to a file, and nothing that comes from a run folder is unpacked in this way.
"""

from __future__ import annotations

import functools
import hashlib
import io
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

import hardtack
from hardtack.base.errors import UserError
from hardtack.engine.job import Job

Step = Callable[[], object]  # what a worker does before it unpacks a job: running the user's files, for example


class Titled(Protocol):
    """A job, or other work with a name for messages."""

    @property
    def title(self) -> str: ...


def pack(job: Titled, steps: Sequence[Step] = ()) -> tuple[bytes, bytes]:
    """The steps and the job as bytes; tensors arrive on the CPU, wherever they were."""
    try:
        return _bytes(tuple(steps)), _bytes(job)
    except Exception as error:  # what pickle raises depends on what it meets
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"{job.title} cannot be sent to other processes: {type(error).__name__}: {reason}. Classes must be defined "
            "in a file or module, not inside a function; without workers the job runs in this process"
        ) from error


def unpack(packed: tuple[bytes, bytes]) -> Job:
    """The job, in a worker; its steps are done first."""
    for step in _value(packed[0]):
        step()
    try:
        job: Job = _value(packed[1])
    except (
        AttributeError,
        ModuleNotFoundError,
    ) as error:  # a class of the driving script, or beside it
        raise UserError(
            f"a worker cannot find a class of this job ({' '.join(str(error).split())[:200]}): define it in a module "
            "that PYTHONPATH leads to, not in the script itself, or name its file as in model=net.py:build"
        ) from None
    return job


def _bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _value(packed: bytes) -> Any:
    return torch.load(io.BytesIO(packed), map_location="cpu", weights_only=False)


# ---------------------------------------------------------------- versions


@functools.cache
def versions() -> dict[str, str]:
    """What must be the same in all processes of a job, or their numbers are not those of one program."""
    return {
        "hardtack": f"{hardtack.__version__} (source {source_digest()})",
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


@functools.cache
def source_digest() -> str:
    """A digest of hardtack's own source: two copies of one version may differ."""
    digest = hashlib.sha256()
    folder = Path(hardtack.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:10]


def check_versions(theirs: Mapping[str, str], where: str) -> None:
    """Refuse a worker with other versions than this process; both are named."""
    ours = versions()
    different = [
        f"{name} {theirs.get(name, 'unknown')} there, {value} here"
        for name, value in ours.items()
        if theirs.get(name) != value
    ]
    if different:
        raise UserError(
            f"{where} has other versions: {'; '.join(different)}. Install the same versions everywhere: results of "
            "different versions are not mixed"
        )
