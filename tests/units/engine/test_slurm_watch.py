"""The loop that watches arrays, with a sbatch and a squeue of the test's own."""

import json
import sys
from types import SimpleNamespace

import pytest

from hardtack.base.errors import UserError
from hardtack.engine.slurm import SlurmSettings, Task, run_array
from hardtack.engine.slurm import command as commands
from hardtack.engine.slurm.queue import compress, parse_queue
from hardtack.engine.slurm.task import tasks_digest

DIGEST = "0123456789abcdef"
# each submission is a line of `calls`; the n-th writes the n-th row of `plan` as what squeue says from then on
SBATCH = """#!{python}
import json, pathlib, re, sys
home = pathlib.Path({home!r})
calls = home / "calls"
number = len(calls.read_text().splitlines()) if calls.exists() else 0
with calls.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
step = json.loads((home / "plan").read_text())[number]
if "error" in step:
    sys.exit(step["error"])
name = re.search("--job-name=(.*)", open(sys.argv[-1]).read())[1]
rows = [f"{{step.get('job', number + 1)}}|{{index}}|{{state}}|None|{{name}}" for index, state in step["rows"]]
(home / "queue").write_text("\\n".join(rows))
for path in step.get("done", []):
    (home / path).touch()
print(f"{{number + 1}};cluster")
"""
SQUEUE = """#!{python}
import pathlib, sys
home = pathlib.Path({home!r})
faults = home / "faults"
if faults.exists():
    faults.unlink()
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
print((home / "queue").read_text() if (home / "queue").exists() else "")
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(python=sys.executable, home=str(tmp_path)))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def run(home, plan, *, tasks=3, **settings):
    (home / "plan").write_text(json.dumps(plan))
    lines = []
    run_array(
        a_list(tasks), SlurmSettings(gpus=0, **settings), folder=home / "slurm", title="x", poll_s=0.01,
        is_done=lambda task: (home / task.label).exists(), tell=lines.append,
    )  # fmt: skip
    return lines


def a_list(number):
    return [Task(f"t{index}", ("true",)) for index in range(number)]


def arrays(home):
    return [call.split()[1] for call in (home / "calls").read_text().splitlines()]


def test_only_lost_tasks_are_submitted_again(fake):
    first = {"rows": [(0, "COMPLETED"), (1, "TIMEOUT"), (2, "NODE_FAIL")], "done": ["t0"]}
    second = {"rows": [(1, "OUT_OF_MEMORY"), (2, "COMPLETED")], "done": ["t2"]}
    lines = run(fake, [first, second, {"rows": [(1, "COMPLETED")], "done": ["t1"]}])
    assert arrays(fake) == ["--array=0-2", "--array=1-2", "--array=1"]
    assert any("1 × TIMEOUT" in line and "1 × NODE_FAIL" in line for line in lines)
    assert lines[-1] == "x: 0 pending, 0 running, 3 of 3 done"


def test_a_task_is_given_up_after_its_retries_and_a_setting_is_suggested(fake):
    plan = [{"rows": [(0, "TIMEOUT")]}] * 3
    with pytest.raises(
        UserError, match=r"'t0' failed 3 times, last: TIMEOUT \(slurm.hours=4 may be too short\): .*no log"
    ):
        run(fake, plan, tasks=1, retries=2)
    assert len(arrays(fake)) == 3


def test_a_task_that_ends_without_a_result_is_noticed(fake):
    with pytest.raises(UserError, match="failed 1 times, last: ended without an error, but its result is not there"):
        run(fake, [{"rows": [(0, "COMPLETED")]}], tasks=1, retries=0)


def test_a_controller_that_is_away_does_not_end_the_watch(fake):
    (fake / "slurm").mkdir()
    lines = run(fake, [{"error": "sbatch: error: Socket timed out on send/recv operation"},
                       {"rows": [], "done": ["t0", "faults"]}], tasks=1)  # fmt: skip
    assert len(arrays(fake)) == 2
    assert any("Socket timed out" in line for line in lines) and any("Unable to contact" in line for line in lines)


def test_a_controller_that_never_answered_is_an_error_at_once(fake):
    (fake / "faults").touch()
    with pytest.raises(UserError, match=r"squeue failed: .*Unable to contact"):
        run(fake, [], tasks=1)


def test_without_slurm_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="squeue was not found"):
        run(tmp_path, [], tasks=1)


def test_jobs_in_the_queue_are_watched_whatever_jobs_json_says(fake):
    digest = tasks_digest(a_list(3), fake / "slurm")
    (fake / "slurm").mkdir()
    for text in ("", "[", '{"arrays": [{"job": true}, {"job": 9, "digest": 1}, 7]}', '{"arrays": 3}'):
        (fake / "slurm" / "jobs.json").write_text(text)
        (fake / "t0").unlink(missing_ok=True)
        # a job with another name, one of another user's tasks, and one of these tasks
        (fake / "queue").write_text(f"7|0|RUNNING|None|x\n8|1|RUNNING|None|x-{DIGEST}-0\n9|2|RUNNING|None|x-{digest}-0")
        (fake / "calls").unlink(missing_ok=True)
        step = {"rows": [(0, "COMPLETED")], "done": ["t0", "t1", "t2"]}
        lines = run(fake, [step])
        assert (
            arrays(fake) == ["--array=0-1"]
            and lines[0] == "x: found 1 task of an earlier call in the queue; watching on"
        )
        for name in ("t1", "t2"):
            (fake / name).unlink()


def test_ctrl_c_leaves_the_jobs_and_says_how_to_stop_them(fake, monkeypatch):
    (fake / "plan").write_text(json.dumps([{"rows": [(0, "RUNNING")]}]))
    lines = []

    def interrupt(_):
        raise KeyboardInterrupt

    # the name in the module, not time.sleep itself, which subprocess calls too
    monkeypatch.setattr("hardtack.engine.slurm.watch.time", SimpleNamespace(sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        run_array(
            a_list(1), SlurmSettings(), folder=fake / "slurm", title="x", is_done=lambda _: False, tell=lines.append
        )
    assert "`scancel 1` stops them" in lines[-1]


def test_reading_the_queue():
    text = (
        f"12|3|RUNNING|None|evaluate-{DIGEST}-0\n12|4|CANCELLED by 1000|None|evaluate-{DIGEST}-1\n"
        f"13|N/A|RUNNING|None|evaluate-{DIGEST}-0\n14|0|RUNNING|None|someone's job\ngarbage\n\n"
        f"15|0|A_NEW_STATE|a reason|a|b-{DIGEST}-0\n"
    )
    rows = parse_queue(text)
    assert [(row.job, row.position, row.state, row.has_ended) for row in rows] == [
        (12, 3, "RUNNING", False), (12, 1004, "CANCELLED", True), (15, 0, "A_NEW_STATE", False),
    ]  # fmt: skip


def test_task_numbers_are_written_short():
    assert compress([7, 0, 1, 2, 2, 9, 8]) == "0-2,7-9" and compress([5]) == "5" and compress([]) == ""


def test_variables_that_would_override_the_script_are_left_out(monkeypatch):
    for name in (
        "SBATCH_TIMELIMIT",
        "SBATCH_PARTITION",
        "SLURM_MEM_PER_NODE",
        "SQUEUE_USERS",
        "SLURM_CONF",
        "SBATCH_QOS",
    ):
        monkeypatch.setenv(name, "x")
    kept = commands.clean_environment(["time", "partition"])
    assert {name for name in kept if name.startswith(("SBATCH", "SLURM", "SQUEUE"))} == {"SLURM_CONF", "SBATCH_QOS"}
