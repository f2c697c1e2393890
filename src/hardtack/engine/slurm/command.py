"""Calls of Slurm's own commands: sbatch and squeue, as they are installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten

TIMEOUT_S = 120.0
# kept when the caller itself runs inside a Slurm job; all other SLURM_ variables describe that job, not the new one
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
_NO_ANSWER = ("unable to contact", "timed out", "temporarily", "connection refused", "communication", "try again")
_NO_GPU = " (these nodes have no such GPUs: slurm.gpus=0 asks for none, slurm.partition=NAME for other nodes)"
# variables that are not called as their option is
_VARIABLES = {
    "time": "SBATCH_TIMELIMIT", "array": "SBATCH_ARRAY_INX", "mem": "SBATCH_MEM_PER_NODE",
    "no-requeue": "SBATCH_NO_REQUEUE",
}  # fmt: skip


class NoAnswerError(UserError):
    """Slurm's controller did not answer. What was asked may have been done all the same."""


def call(words: Sequence[str], *, env: dict[str, str] | None = None) -> str:
    """The standard output of a command of Slurm's; a UserError quotes what it says where it fails."""
    try:
        done = subprocess.run(
            list(words), capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            env=clean_environment() if env is None else env,
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError(
            f"the command {words[0]} was not found: is this a machine of a Slurm cluster, with Slurm's folder in PATH?"
        ) from None
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{words[0]} did not end within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise UserError(f"{words[0]} could not be started: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout
    said = shorten(" ".join((done.stderr or done.stdout).split()), 400) or f"exit code {done.returncode}"
    kind = NoAnswerError if any(sign in said.lower() for sign in _NO_ANSWER) else UserError
    raise kind(f"{words[0]} failed: {said}{_NO_GPU if 'invalid generic resource' in said.lower() else ''}")


def clean_environment(options: Iterable[str] = ()) -> dict[str, str]:
    """This process's environment for a call of Slurm.

    Without SQUEUE_ variables, which could hide jobs; without those of a job that this process may run in; and without
    the SBATCH_ variables of these options of sbatch, because they would override the script.
    """
    ours = {_VARIABLES.get(name, f"SBATCH_{name.upper().replace('-', '_')}") for name in options}
    kept = {}
    for name, value in os.environ.items():
        inside = name.startswith(("SLURM_", "SRUN_")) and name not in _KEPT
        if not inside and not name.startswith("SQUEUE_") and name not in ours:
            kept[name] = value
    return kept


def sbatch_words(script: Path, *, array: str | None = None) -> list[str]:
    """The command that submits a script; `array` replaces the script's own list of task numbers."""
    chosen = [f"--array={array}"] if array is not None else []
    return ["sbatch", "--parsable", *chosen, str(script)]


def submit(script: Path, *, array: str | None = None) -> int:
    """Submit a script; returns the job's id."""
    lines = script.read_text(encoding="utf-8").splitlines()
    options = [line.removeprefix("#SBATCH --").partition("=")[0] for line in lines if line.startswith("#SBATCH --")]
    said = call(sbatch_words(script, array=array), env=clean_environment(options)).strip()
    number = said.splitlines()[-1].partition(";")[0] if said else ""  # `12;cluster` where there are several clusters
    if not number.isdecimal():
        raise UserError(f"sbatch did not say the job's id but: {shorten(said)}")
    return int(number)
