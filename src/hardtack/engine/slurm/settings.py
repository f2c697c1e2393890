"""What a Slurm job asks for. Every value is checked here, because it is written into a shell script."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator

from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.printable import printable

# options that hardtack writes itself, with the setting that a user changes instead
OWN_OPTIONS = {
    "partition": "slurm.partition", "account": "slurm.account", "qos": "slurm.qos", "time": "slurm.hours",
    "cpus-per-task": "slurm.cpus", "mem": "slurm.memory_gb", "constraint": "slurm.constraint",
    "array": "slurm.at_once", "job-name": "", "output": "", "error": "", "open-mode": "", "chdir": "", "requeue": "",
    "no-requeue": "", "nodes": "slurm.nodes", "ntasks": "", "ntasks-per-node": "", "parsable": "", "wrap": "",
    "wait": "", "test-only": "", "hold": "",
}  # fmt: skip
GPU_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")


def refuse_control(text: str, *, what: str) -> str:
    """The text itself; a UserError where it holds a line break or another character that no script should hold."""
    if printable(text) != text or "\n" in text or "\t" in text:
        shown = printable(text).replace("\n", "\\n").replace("\t", "\\t")
        raise UserError(f"{what} contains a line break or a control character: {shown[:120]}")
    return text


def _word(value: Any) -> Any:
    """One word: account numbers and the like arrive from the command line as numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        refuse_control(value, what="the value")
        if not value.strip():
            raise UserError("the value is empty; leave the setting out instead")
    return value


def _option(value: Any) -> bool | str:
    """The value of a further option; true stands for an option without a value."""
    made = value if isinstance(value, bool) else _word(value)
    if not isinstance(made, bool | str):
        raise UserError(f"an option of sbatch is text, a number or true, not {value!r}")
    return made


def _shell_lines(value: Any) -> Any:
    """Shell code may have several lines."""
    if isinstance(value, str):
        for line in value.split("\n"):
            refuse_control(line.replace("\t", " "), what="the value")
    return value


Word = Annotated[str, BeforeValidator(_word)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """The resources of one task, and how an array of tasks is run.

    partition    partition of the jobs, as sbatch takes it; null: the cluster's default
    account      account that is charged, as sbatch takes it; null: the cluster's default
    qos          quality of service, as sbatch takes it; null: the cluster's default
    constraint   features that nodes must have, as sbatch takes them; null: any node
    gpus         GPUs of one task, on each of its nodes; 0: a job without GPU
    nodes        nodes of one task; more than one for a training
    cpus         cores of one task; null: the cluster's default
    memory_gb    main memory of one task; null: the cluster's default
    hours        time limit of one task; Slurm counts in minutes
    at_once      most tasks that run at the same time; null: as many as the cluster lets
    setup        shell lines that run before each task, for example `module load cuda`; null: none
    options      further options of sbatch by their long names: {nice: 100, exclusive: true}
    retries      how many times a task is submitted again that ended without its result
    """

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    gpus: Annotated[int, Field(ge=0, le=1024)] = 1
    nodes: Count = 1
    cpus: Count | None = None
    memory_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None
    hours: Annotated[float, Field(gt=0, le=24 * 366)] = 4.0
    at_once: Count | None = None
    setup: Annotated[str, BeforeValidator(_shell_lines)] | None = None
    options: dict[str, Annotated[bool | str, PlainValidator(_option)]] = field(default_factory=dict)
    retries: Annotated[int, Field(ge=0, le=100)] = 3

    def __post_init__(self) -> None:
        check(self)
        for name in self.options:
            _check_option(name)

    def lines(self) -> Iterator[tuple[str, str | None]]:
        """Options of sbatch and their values; None for an option without a value."""
        for name in ("partition", "account", "qos", "constraint"):
            if getattr(self, name) is not None:
                yield name, getattr(self, name)
        yield "time", self.time_limit()
        if self.gpus and not any(name in self.options for name in GPU_OPTIONS):
            yield "gres", f"gpu:{self.gpus}"
        if self.cpus is not None:
            yield "cpus-per-task", str(self.cpus)
        if self.memory_gb is not None:
            yield "mem", f"{math.ceil(self.memory_gb * 1024)}M"
        for name, value in self.options.items():
            if value is not False:
                yield name, None if value is True else str(value)

    def time_limit(self) -> str:
        """`4:30:00`, rounded up to a minute."""
        minutes = math.ceil(round(self.hours * 60, 6))
        return f"{minutes // 60}:{minutes % 60:02d}:00"


def _check_option(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise UserError(f"options: '{printable(name)[:60]}' is not the long name of an option of sbatch, such as nice")
    if name in OWN_OPTIONS:
        instead = f"; change it with {OWN_OPTIONS[name]}" if OWN_OPTIONS[name] else ""
        raise UserError(f"options: hardtack sets --{name} itself{instead}")
