"""One training on several GPUs or nodes: a job array of one task, in which Slurm starts torchrun once on each node."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hardtack.engine.slurm.settings import SlurmSettings
from hardtack.engine.slurm.task import Task, check_folder, log_path


def training_task(words: Sequence[str], *, label: str) -> Task:
    """The task of `hardtack WORDS…` (`train recipe.yaml …`), whose command is completed by `torchrun_lines`."""
    return Task(label=label, command=("-m", "hardtack", *words))


def torchrun_lines(settings: SlurmSettings, *, folder: str | Path) -> list[str]:
    """Shell lines that run the task's command in one process per GPU, or one per node without GPUs.

    The processes meet at the first node, at a port that follows from the job's id, so that two jobs on a node do not
    meet. torchrun ends with 1 whatever its processes end with, and lists their exit codes: 2, a mistake of the user's,
    is passed on, so that the job is not submitted again.
    """
    log = shlex.quote(str(log_path(check_folder(folder), 0)))
    cores = f" --cpus-per-task={settings.cpus}" if settings.cpus is not None else ""  # srun does not inherit it
    return [
        "launch() {",
        '  read -r first_host < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f"  srun --kill-on-bad-exit=1{cores} {shlex.quote(sys.executable)} -m torch.distributed.run \\",
        f"    --nnodes={settings.nodes} --nproc-per-node={max(settings.gpus, 1)} \\",
        '    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d \\',
        '    --rdzv-endpoint="$first_host:$((20000 + SLURM_JOB_ID % 20000))" "$@" && return 0',
        f"  tail -n 200 {log} | grep 'exitcode *: 2 ' > /dev/null && return 2",
        "  return 1",
        "}",
        'set -- launch "$@"',
    ]
