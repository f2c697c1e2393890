"""Tasks as Slurm job arrays: submitted, watched, and submitted again where they were lost.

A `Task` is a command line with its environment; `run_array` returns when all are done. sbatch and squeue are used as
they are installed: `script.py` writes the script, `command.py` calls them, `queue.py` reads the queue, `watch.py` is
the loop, `outcome.py` says how a task ended, `training.py` is for one large training under torchrun.

    tasks = [Task(f"rows {k}", (sys.executable, "-m", "hardtack", …), {"HARDTACK_SHARE": f"{k}/8"}) for k in range(8)]
    run_array(tasks, SlurmSettings(partition="gpu"), folder="run/.slurm", title="evaluate", is_done=…, tell=print)

Nothing is pickled: what a task is to do stands in its command line, and its result is where `is_done` looks.
"""

from hardtack.engine.slurm.describe import describe_array
from hardtack.engine.slurm.script import array_script
from hardtack.engine.slurm.settings import SlurmSettings
from hardtack.engine.slurm.task import Task
from hardtack.engine.slurm.training import torchrun_lines, training_task
from hardtack.engine.slurm.watch import run_array

__all__ = ["SlurmSettings", "Task", "array_script", "describe_array", "run_array", "torchrun_lines", "training_task"]
