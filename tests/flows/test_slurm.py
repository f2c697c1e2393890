"""Job arrays on a real Slurm cluster: tasks that are lost run again, and no task runs twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hardtack.base.errors import UserError
from hardtack.engine.slurm import SlurmSettings, Task, run_array

pytest_plugins = ("slurm_cluster",)

# appends a line to count its runs, waits until it may end, and writes its result
WORK = 'echo run >> "$NAME.runs"; while [ ! -e "$GO" ]; do sleep 0.1; done; touch "$NAME.result"'
DRIVER = """
import sys
from pathlib import Path
from hardtack.engine.slurm import SlurmSettings, Task, run_array

folder, go = Path(sys.argv[1]), sys.argv[2]
work = sys.argv[3]
tasks = [Task(f"t{k}", ("bash", "-c", work), {"NAME": str(folder / f"t{k}"), "GO": go}) for k in range(3)]
run_array(tasks, SlurmSettings(gpus=0), folder=folder / "slurm", title="driver", poll_s=0.2,
          is_done=lambda task: Path(task.env["NAME"] + ".result").exists(), tell=lambda line: print(line, flush=True))
"""


def a_task(folder: Path, name: str, *, work: str = WORK, go: str = "/") -> Task:
    return Task(name, ("bash", "-c", work), {"NAME": str(folder / name), "GO": go})


def is_done(task: Task) -> bool:
    return Path(task.env["NAME"] + ".result").exists()


def runs(folder: Path, name: str) -> int:
    path = folder / f"{name}.runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for(ready, timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def run(tasks, folder, *, settings=None, tell=None, title="flow"):
    lines = []
    run_array(
        tasks, settings or SlurmSettings(gpus=0), folder=folder / "slurm", title=title, is_done=is_done,
        tell=tell or lines.append, poll_s=0.2,
    )  # fmt: skip
    return lines


def job_of(lines) -> str:
    return next(line for line in lines if "submitted" in line and "as job" in line).split()[-1]


def test_the_cluster_starts_in_time(slurm):
    assert slurm.started_in_s < 10


def test_tasks_run_once_where_no_shell_reads_their_words(slurm, tmp_path, monkeypatch):
    folder = tmp_path / "a b'c\"d $(touch x) %j #e"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")  # a variable must not override a setting
    monkeypatch.setenv("SQUEUE_PARTITION", "nowhere")  # … nor hide the jobs
    tasks = [a_task(folder, name) for name in ("one", "$(touch y)", 'it\'s; "three"')]
    lines = run(tasks, folder, settings=SlurmSettings(gpus=0, partition="main", setup="export A=1\nB=$NOTHING"))
    assert [runs(folder, task.label) for task in tasks] == [1, 1, 1]
    assert not (folder / "x").exists() and not (folder / "y").exists()
    assert lines[-1] == "flow: 0 pending, 0 running, 3 of 3 done"
    assert (folder / "slurm" / "task-2.log").exists()
    assert run(tasks, folder) == ["flow: 0 pending, 0 running, 3 of 3 done"]  # done: nothing is submitted


def test_a_cancelled_task_runs_again_and_no_other(slurm, tmp_path):
    go = tmp_path / "go"
    tasks = [a_task(tmp_path, f"t{number}", go=str(go)) for number in range(4)]
    lines = []
    thread = threading.Thread(target=run, args=(tasks, tmp_path), kwargs={"tell": lines.append})
    thread.start()
    wait_for(lambda: all(runs(tmp_path, task.label) for task in tasks))
    slurm.ask("scancel", f"{job_of(lines)}_2")
    wait_for(lambda: runs(tmp_path, "t2") == 2)
    go.touch()
    thread.join(15)
    assert not thread.is_alive()
    assert [runs(tmp_path, task.label) for task in tasks] == [1, 1, 2, 1]
    assert "flow: 1 task 't2' lost (1 × CANCELLED); to be submitted again" in lines


def test_no_more_tasks_run_than_allowed(slurm, tmp_path):
    work = 'echo run >> "$NAME.runs"; mkdir "$GO" || exit 1; sleep 0.3; rmdir "$GO"; touch "$NAME.result"'
    tasks = [a_task(tmp_path, f"t{number}", work=work, go=str(tmp_path / "alone")) for number in range(3)]
    run(tasks, tmp_path, settings=SlurmSettings(gpus=0, at_once=1, retries=0))
    assert [runs(tmp_path, task.label) for task in tasks] == [1, 1, 1]


def test_a_mistake_of_the_user_is_told_and_not_repeated(slurm, tmp_path):
    work = 'echo run >> "$NAME.runs"; echo "hardtack: no such model (did you mean vit?)" >&2; echo later; exit 2'
    with pytest.raises(UserError, match=r"^task 'bad': no such model \(did you mean vit\?\) \(.*task-0.log\)"):
        run([a_task(tmp_path, "bad", work=work)], tmp_path)
    assert runs(tmp_path, "bad") == 1


def test_a_task_that_always_fails_is_given_up(slurm, tmp_path):
    tasks = [a_task(tmp_path, "bad", work='echo run >> "$NAME.runs"; echo no luck; exit 7'), a_task(tmp_path, "good")]
    with pytest.raises(UserError, match=r"task 'bad' failed 2 times, last: exit code 7: no luck"):
        run(tasks, tmp_path, settings=SlurmSettings(gpus=0, retries=1))
    assert runs(tmp_path, "bad") == 2 and runs(tmp_path, "good") == 1


def test_what_sbatch_refuses_is_quoted(slurm, tmp_path):
    with pytest.raises(UserError, match=r"sbatch failed: .*nowhere.*[Ii]nvalid partition"):
        run([a_task(tmp_path, "t")], tmp_path, settings=SlurmSettings(gpus=0, partition="nowhere"))


def test_gpus_that_no_node_has_are_refused_with_a_hint(slurm, tmp_path):
    with pytest.raises(UserError, match=r"Invalid generic resource.*slurm.gpus=0 asks for none"):
        run([a_task(tmp_path, "t")], tmp_path, settings=SlurmSettings())


def test_a_killed_driver_finds_its_array_again(slurm, tmp_path):
    script, go = tmp_path / "driver.py", tmp_path / "go"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(tmp_path), str(go), WORK]

    def start():
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    first = start()
    wait_for(lambda: all(runs(tmp_path, f"t{number}") for number in range(3)))
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    (tmp_path / "slurm" / "jobs.json").unlink(missing_ok=True)  # as if killed before it was written
    second = start()
    assert second.stdout is not None
    assert second.stdout.readline() == "driver: found 3 tasks of an earlier call in the queue; watching on\n"
    time.sleep(1)  # several polls
    go.touch()
    said, _ = second.communicate(timeout=15)
    assert second.returncode == 0, said
    assert "submitted" not in said
    assert [runs(tmp_path, f"t{number}") for number in range(3)] == [1, 1, 1]


def test_other_tasks_for_the_same_folder_are_refused_while_jobs_run(slurm, tmp_path):
    go = tmp_path / "go"
    lines = []
    tasks = [a_task(tmp_path, "old", go=str(go))]
    thread = threading.Thread(target=run, args=(tasks, tmp_path), kwargs={"tell": lines.append})
    thread.start()
    wait_for(lambda: runs(tmp_path, "old") == 1)
    from hardtack.engine.slurm.watch import _Watch

    other = _Watch(
        [a_task(tmp_path, "new")], SlurmSettings(gpus=0), folder=tmp_path / "slurm", title="flow", is_done=is_done,
        tell=lines.append, launch=(), prepare=lambda: pytest.fail("something was written before the refusal"),
    )  # fmt: skip
    with pytest.raises(UserError, match=f"other settings are still in the queue .*scancel {job_of(lines)}`"):
        other.step()
    go.touch()
    thread.join(15)
    assert runs(tmp_path, "new") == 0


@pytest.mark.slow
def test_a_task_at_its_time_limit_runs_again(slurm, tmp_path):
    """Slurm looks for tasks over their limit every 30 seconds."""
    go = tmp_path / "go"
    lines = []
    tasks = [a_task(tmp_path, "t", go=str(go))]
    thread = threading.Thread(target=run, args=(tasks, tmp_path), kwargs={"tell": lines.append})
    thread.start()
    wait_for(lambda: runs(tmp_path, "t") == 1)
    slurm.ask("scontrol", "update", f"JobId={job_of(lines)}", "EndTime=now")
    wait_for(lambda: runs(tmp_path, "t") == 2, timeout_s=50)
    go.touch()
    thread.join(15)
    assert "flow: 1 task 't' lost (1 × TIMEOUT); to be submitted again" in lines
